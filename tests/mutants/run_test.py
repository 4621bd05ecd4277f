"""The script that tries mutants: what it reads, and what it complains of."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("run", str(HERE / "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)

GOOD = """# A comment.
[first]
file: src/a.cc
breaks: a rule
  of two lines
test: part Suite.finds*:*/Other.case/*
-  int a = 1;
-  int b = 2;
+  int a = 2;
"""


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/a.cc", "void f() {\n  int a = 1;\n  int b = 2;\n  int c = 1;\n}\n")
        self.write("tests/part/x_test.cc", "TEST(Suite, finds_it) {}\nTEST_P(Other, case) {}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def errors(self, mutants):
        self.write("tests/mutants/all.mutants", mutants)
        return run.check(self.root)

    def expect_error(self, mutants, sentence):
        errors = self.errors(mutants)
        self.assertEqual(1, len(errors), errors)
        self.assertIn(sentence, errors[0])

    def test_a_good_file_has_no_errors(self):
        self.assertEqual([], self.errors(GOOD))

    def test_a_mutant_is_read_and_applied(self):
        self.errors(GOOD)
        [mutant] = run.all_mutants(self.root)[0]
        self.assertEqual("a rule of two lines", mutant.breaks)
        self.assertEqual([("part", "Suite.finds*:*/Other.case/*")], mutant.tests)
        mutated = mutant.mutated((self.root / "src/a.cc").read_text())
        self.assertEqual("void f() {\n  int a = 2;\n  int c = 1;\n}\n", mutated)

    def test_old_text_that_is_gone_or_not_unique_is_found(self):
        self.expect_error(GOOD.replace("-  int b = 2;\n", "-  int b = 3;\n"), "occurs 0 times")
        self.expect_error(GOOD.replace("-  int a = 1;\n-  int b = 2;\n", "- = 1;\n"),
                          "occurs 2 times")

    def test_a_test_that_does_not_exist_is_found(self):
        self.expect_error(GOOD.replace("finds*", "loses*"), "does not exist: part Suite.loses*")
        self.expect_error(GOOD.replace("/Other.case/*", "/Other.case2/*"), "Other.case2")
        self.expect_error(GOOD.replace("test: part Suite.finds*:*/Other.case/*\n", ""),
                          "names no test")

    def test_what_else_is_wrong_with_a_file_is_found(self):
        self.expect_error(GOOD + GOOD, "is the name of two mutants")
        self.expect_error(GOOD.replace("src/a.cc", "src/b.cc"), "a file that does not exist")
        self.expect_error(GOOD.replace("  int a = 2;", "  int a = 1;\n+  int b = 2;"),
                          "changes nothing")
        self.expect_error(GOOD.replace("breaks: a rule\n  of two lines\n", ""), "what it breaks")
        self.expect_error(GOOD + "why: because\n", "neither a field")
        self.expect_error("", "there are no mutants")


if __name__ == "__main__":
    unittest.main()
