"""Documents from Python: iterables, rows, Parquet and Arrow files are streamed to the program, and chats become texts."""

import contextlib
import importlib.util
import io
import itertools
import json
import struct
import unittest

import program
import regroup
from regroup import documents


def has(package):
    return importlib.util.find_spec(package) is not None


class Tokenizing(unittest.TestCase):
    def setUp(self):
        scratch = program.Scratch()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch
        self.number = itertools.count()

    def made_of(self, inputs, **options):
        output = self.scratch / f"{next(self.number)}.bin"
        report = regroup.tokenize(inputs, output, tokenizer="bytes", eos_token=256, **options)
        ids = struct.unpack(f"<{output.stat().st_size // 2}H", output.read_bytes())
        texts = [bytes(group).decode() for end, group in itertools.groupby(ids, lambda each: each == 256) if not end]
        self.assertEqual(report["documents"], len(texts))
        return texts

    def test_an_iterable_of_texts_or_rows_is_a_document_each(self):
        many = [f"document {number} ü\n" for number in range(20_000)]
        self.assertEqual(self.made_of(iter(many)), many)
        self.assertEqual(self.made_of({"text": text, "id": 1} for text in many[:9]), many[:9])
        self.assertEqual(self.made_of(({"a": {"b": text}} for text in many[:9]), field="a.b"), many[:9])
        calls = []
        self.made_of((text for text in many), on_progress=calls.append)
        self.assertTrue(all(each["progress"] == "tokenize" for each in calls))

    def test_a_list_is_still_one_of_paths(self):
        (self.scratch / "a.txt").write_text("one")
        self.assertEqual(self.made_of([self.scratch / "a.txt"]), ["one"])
        with self.assertRaises(regroup.BadInputError):
            self.made_of(["no such file"])

    def test_what_is_no_document_is_refused_and_leaves_nothing(self):
        for inputs, word in [
            (iter(["one", 2]), "document 1"),
            (iter([{"body": "x"}]), "it has body"),
            ({"train": ["one"], "test": ["two"]}, "train, test"),
        ]:
            with self.subTest(word), self.assertRaisesRegex(regroup.UsageError, word):
                self.made_of(inputs)
        with self.assertRaisesRegex(regroup.BadInputError, "no text"):
            self.made_of(iter([]))
        self.assertEqual([path.name for path in (self.scratch / "a").parent.iterdir()], [])

    def test_what_an_iterable_raises_stops_the_command(self):
        def broken():
            yield from ["text"] * 1000
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.made_of(broken())

    def test_an_endless_iterable_ends_with_the_program(self):
        with self.assertRaises(regroup.UsageError):
            self.made_of(itertools.repeat("text"), bos=True)

    @unittest.skipUnless(has("pyarrow"), "needs pyarrow")
    def test_parquet_and_arrow_files_are_read(self):
        import pyarrow
        import pyarrow.parquet

        texts = [f"row {number}" for number in range(3000)]
        table = pyarrow.table({"text": texts, "n": list(range(3000))})
        pyarrow.parquet.write_table(table, self.scratch / "a.parquet")
        for name, open_writer in [("a.arrow", pyarrow.ipc.new_file), ("b.arrow", pyarrow.ipc.new_stream)]:
            with open_writer(str(self.scratch / name), table.schema) as writer:
                writer.write_table(table)
        for name in ["a.parquet", "a.arrow", "b.arrow"]:
            with self.subTest(name):
                self.assertEqual(self.made_of(self.scratch / name), texts)
        self.assertEqual(self.made_of([self.scratch / "a.parquet", self.scratch / "a.arrow"]), 2 * texts)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.assertEqual(documents.main([str(self.scratch / "a.parquet")]), 0)
        self.assertEqual([json.loads(line)["text"] for line in printed.getvalue().splitlines()], texts)
        (self.scratch / "cut.parquet").write_bytes((self.scratch / "a.parquet").read_bytes()[:-20])
        with self.assertRaises(regroup.BadInputError):
            self.made_of(self.scratch / "cut.parquet")

    def test_a_parquet_file_given_to_the_program_says_what_to_type(self):
        (self.scratch / "a.parquet").write_bytes(b"PAR1\0\1" + bytes(100))
        with self.assertRaisesRegex(regroup.RegroupError, "python -m regroup.documents FILE"):
            regroup.eval(program.GOLDEN / "llama", text=self.scratch / "a.parquet", tokenizer="bytes")

    def test_the_module_says_what_is_wrong_in_one_line(self):
        (self.scratch / "a.jsonl").write_text('{"text": "one"}\n{"body": 2}\n')
        for words, code in [([str(self.scratch / "none")], 3), ([str(self.scratch / "a.jsonl")], 2)]:
            printed = io.StringIO()
            with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(documents.main(words), code)
            self.assertEqual(printed.getvalue().count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
