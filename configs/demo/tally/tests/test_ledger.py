import unittest
from datetime import date

from tally.ledger import Entry, LedgerError, of_month, parse_ledger

TEXT = """\
# March
2026-03-02  groceries   41.50   # market

2026-03-09  groceries   -1.50
2026-04-01\ttravel\t18
"""


class LedgerTest(unittest.TestCase):
    def test_notes_and_empty_lines_are_skipped(self):
        entries = parse_ledger(TEXT)
        self.assertEqual([entry.cents for entry in entries], [4150, -150, 1800])
        self.assertEqual(entries[0], Entry(day=date(2026, 3, 2), category="groceries", cents=4150))

    def test_errors_name_the_line(self):
        for bad in ("2026-13-01 travel 1", "2026-03-01 travel", "2026-03-01 travel 1,50"):
            with self.assertRaisesRegex(LedgerError, "^line 2: "):
                parse_ledger(f"# first\n{bad}\n")

    def test_a_month_can_be_chosen(self):
        self.assertEqual([entry.cents for entry in of_month(parse_ledger(TEXT), "2026-04")], [1800])
