import unittest
from decimal import Decimal

from tally.money import format_cents, parse_cents, percent, round_cents, split


class MoneyTest(unittest.TestCase):
    def test_amounts_are_read(self):
        self.assertEqual(parse_cents("12.5"), 1250)
        self.assertEqual(parse_cents("-3.05"), -305)
        self.assertRaises(ValueError, parse_cents, "1,50")

    def test_amounts_are_written_with_their_sign(self):
        self.assertEqual(format_cents(1250), "12.50")
        self.assertEqual(format_cents(-1250), "-12.50")
        self.assertEqual(format_cents(-5), "-0.05")

    def test_halves_go_to_the_even_neighbour(self):
        self.assertEqual([round_cents(Decimal(text)) for text in ("0.125", "0.135", "0.145")], [12, 14, 14])
        self.assertEqual(round_cents(Decimal("-0.125")), -12)

    def test_a_split_loses_no_cent(self):
        self.assertEqual(split(100, 3), [34, 33, 33])
        self.assertEqual(split(-100, 3), [-34, -33, -33])

    def test_shares_are_rounded_like_cents(self):
        self.assertEqual(percent(1, 8), "12.5 %")
        self.assertEqual(percent(1, 16), "6.2 %")
        self.assertEqual(percent(0, 0), "0.0 %")
