import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from tally.cli import main

TEXT = """\
2026-03-02  groceries   41.50   # market
2026-03-05  travel      18.00
2026-03-09  groceries   -1.50
2026-04-01  travel       7.00
"""


class CommandLineTest(unittest.TestCase):
    def run_tally(self, text: str, *options: str) -> tuple[int, list[str], str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "expenses.txt")
            file.write_text(text, encoding="utf-8")
            output, errors = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                code = main([str(file), *options])
        return code, output.getvalue().splitlines(), errors.getvalue()

    def test_the_report_ends_with_the_total(self):
        code, output, _ = self.run_tally(TEXT)
        self.assertEqual(code, 0)
        self.assertEqual(output[-1].split(), ["total", "65.00"])

    def test_the_report_of_a_month(self):
        _, output, _ = self.run_tally(TEXT, "--month", "2026-03")
        self.assertEqual(
            [line.split() for line in output],
            [["groceries", "40.00", "69.0", "%"], ["travel", "18.00", "31.0", "%"], ["total", "58.00"]],
        )

    def test_a_bad_line_is_told_and_nothing_is_printed(self):
        code, output, errors = self.run_tally("2026-03-02 groceries\n")
        self.assertEqual((code, output), (2, []))
        self.assertIn("line 1: ", errors)

    def test_a_missing_file_is_told(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(main(["no-such-file.txt"]), 2)
        self.assertIn("no-such-file.txt", errors.getvalue())
