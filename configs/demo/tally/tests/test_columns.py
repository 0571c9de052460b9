import unittest
from datetime import date

from tally.ledger import Entry
from tally.report import lines

ENTRIES = [Entry(date(2026, 3, 1), "groceries", 123450), Entry(date(2026, 3, 2), "tea", -50)]


class ColumnsTest(unittest.TestCase):
    def test_amounts_end_in_the_same_column(self):
        groceries, tea = lines(ENTRIES)
        self.assertEqual(groceries.index("1234.50") + len("1234.50"), tea.index("-0.50") + len("-0.50"))

    def test_a_line_begins_with_its_category(self):
        self.assertEqual([line.split()[0] for line in lines(ENTRIES)], ["groceries", "tea"])

    def test_no_entries_make_no_lines(self):
        self.assertEqual(lines([]), [])
