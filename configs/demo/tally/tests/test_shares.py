import unittest
from datetime import date

from tally.ledger import Entry
from tally.report import lines

ENTRIES = [Entry(date(2026, 3, 1), "groceries", 1500), Entry(date(2026, 3, 2), "tea", 100)]


class SharesTest(unittest.TestCase):
    def test_a_line_ends_with_the_share_of_the_whole(self):
        groceries, tea = lines(ENTRIES)
        self.assertTrue(groceries.endswith(" 93.8 %"), groceries)
        self.assertTrue(tea.endswith(" 6.2 %"), tea)

    def test_nothing_spent_is_no_error(self):
        self.assertTrue(lines([Entry(date(2026, 3, 1), "tea", 0)])[0].endswith(" 0.0 %"))
