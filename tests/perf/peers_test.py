"""Tests perf/bench peers without other libraries: the figures of a report, starting and ending of
programs, and hocket's measuring program. peers_test.py SPOILER; BUILD_DIR is the build folder."""

import argparse
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "perf" / "peers"), str(ROOT / "perf")]

import backends
import explain_sweep
import measure
import results

SPOILER = sys.argv.pop()


def result(peer, config, number, p50_us, size=8):
    return {"transport": "shm", "ranks": 2, "collective": "broadcast", "peer": peer, "wrong": 0,
            "config": config, "round": number, "bytes": size, "p50_us": p50_us}


def options(**changed):
    return argparse.Namespace(**{"seconds": 0.001, "offset": 0, "limit": 60, "sizes": [8, 4096],
                                 **changed})


class Report(unittest.TestCase):
    def read(self, lines):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "results.json")
            path.write_text(json.dumps({"results": lines, "failures": []}))
            return results.Results(path)

    def test_takes_the_median_of_the_rounds_and_the_best_configuration(self):
        found = self.read(
            [result("hocket", "plain", i, us) for i, us in enumerate([4, 9, 5])] +
            [result("hocket", "alloc", i, us) for i, us in enumerate([2, 2, 2])] +
            [result("mpich", "default", i, us) for i, us in enumerate([1, 20, 20])] +
            [result("mpich", "staged", i, us) for i, us in enumerate([10, 11, 10])] +
            [result("gloo", "tcp", 0, 600)])
        case = ("shm", 2, "broadcast")
        row = found.cases[case][8]
        self.assertEqual(row["hocket", "plain"][0], 5)
        self.assertEqual(row["mpich", None][:2], (10, "staged"))
        self.assertEqual(found.ratio(row, ("hocket", "plain")), 2)
        self.assertEqual(found.ratio(row, ("hocket", "alloc")), 5)
        self.assertEqual(found.cells(row),
                         ["5.00", "2.00", "-", "-", "-", "-", "10.0", "600", "2.00x", "5.00x"])
        self.assertEqual(found.configurations(case), ["MPICH: staged", "Gloo: tcp"])

    def test_names_the_best_peer_and_joins_runs(self):
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for number, lines in enumerate([
                    [result("hocket", "plain", 1, 4), result("mpich", "default", 1, 3)],
                    [result("hocket", "plain", 1, 8), result("hocket", "plain", 1, 6),
                     result("impi", "heap", 1, 2)]]):
                paths.append(Path(directory, f"{number}.json"))
                paths[-1].write_text(json.dumps({"results": lines, "failures": [number],
                                                 "versions": {}, "minutes": 1}))
            found = results.Results(*paths)
        row = found.cases["shm", 2, "broadcast"][8]
        self.assertEqual(row["hocket", "plain"][0], 6)
        self.assertEqual(found.best_peer(row), "Intel MPI")
        self.assertEqual(found.whole["failures"], [0, 1])
        self.assertEqual(found.whole["minutes"], 2)

    def test_says_where_buffers_begin_and_joins_no_files_in_which_that_differs(self):
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for offset in 0, 4:
                paths.append(Path(directory, f"{offset}.json"))
                paths[-1].write_text(json.dumps({
                    "results": [result("hocket", "plain", 1, 4)], "failures": [], "versions": {},
                    "minutes": 1, "offset": offset, "date": "", "commit": "", "machine": {}}))
            line = "buffers begin 4 floats behind the start of a page"
            self.assertNotIn(line, results.Results(paths[0]).about())
            self.assertIn(line, results.Results(paths[1]).about())
            with self.assertRaisesRegex(ValueError, "different offsets"):
                results.Results(*paths)

    def test_has_the_floor_of_each_kind_of_memory_and_compares_with_peers_only(self):
        found = self.read([result("hocket", "plain", 1, 4), result("mpich", "default", 1, 6),
                           result("floor", "staged-64K", 1, 3), result("floor", "copy", 1, 5),
                           result("floor", "direct", 1, 2)])
        row = found.cases["shm", 2, "broadcast"][8]
        self.assertEqual(row["floor", "plain"][:2], (3, "staged-64K"))
        self.assertEqual(row["floor", "alloc"][:2], (2, "direct"))
        self.assertEqual(found.ratio(row, ("hocket", "plain")), 1.5)

    def test_compares_what_was_measured_with_the_cores_equally_near(self):
        def timed(peer, config, number, p50_us, *barriers):
            return {**result(peer, config, number, p50_us), "barrier_us": barriers}

        near, far = (0.1, 0.1), (0.3, 0.31)
        lines = [timed("hocket", "plain", 1, 4, *near), timed("hocket", "plain", 2, 9, *far),
                 timed("hocket", "plain", 3, 8, *far), timed("mpich", "default", 1, 30, *far),
                 timed("mpich", "default", 2, 5, 0.1, 0.3), timed("mpich", "staged", 1, 70, *near)]
        found = self.read(lines)
        case = ("shm", 2, "broadcast")
        # MPICH's best configuration was not measured near.
        self.assertEqual(found.states[case, 8], "far")
        self.assertEqual(found.cases[case][8]["hocket", "plain"][0], 8.5)
        self.assertEqual(found.cases[case][8]["mpich", None][:2], (30, "default"))
        self.assertIn("cores: far (8 B)", found.configurations(case))
        found = self.read([*lines, timed("mpich", "default", 3, 6, *near)])
        self.assertEqual(found.states[case, 8], "near")
        self.assertEqual(found.ratio(found.cases[case][8], ("hocket", "plain")), 1.5)
        found = self.read(lines[:1] + lines[3:4])
        self.assertEqual(found.states[case, 8], "", "they have no state in common")
        self.assertEqual(found.ratio(found.cases[case][8], ("hocket", "plain")), 7.5)

    def test_tells_near_from_far_where_a_few_barriers_were_disturbed(self):
        def timed(peer, number, p50_us, *barriers):
            return {**result(peer, "default", number, p50_us), "barrier_us": barriers}

        lines = [timed("mpich", number, 5, 0.07, 0.08) for number in range(20)]
        lines += [timed("mpich", number, 9, 0.33, 0.4) for number in range(20, 40)]
        lines += [timed("hocket", 1, 4, 6.2, 0.07), timed("hocket", 2, 8, 0.4, 0.41)]
        found = self.read(lines)
        self.assertTrue(0.08 < found.middle_us < 0.33)
        self.assertEqual(found.states[("shm", 2, "broadcast"), 8], "far")

    def test_has_no_ratio_without_a_peer(self):
        found = self.read([result("hocket", "plain", 1, 4)])
        row = found.cases["shm", 2, "broadcast"][8]
        self.assertIsNone(found.ratio(row, ("hocket", "plain")))


class Sweep(unittest.TestCase):
    def line(self, size, ratio, chosen, error, count=2):
        return {"medium": "tcp", "ranks": 2, "collective": "reduce", "bytes": size, "count": count,
                "ratio": ratio, "chosen": chosen, "error_percent": error}

    def test_counts_points_near_the_best_and_errors(self):
        points = explain_sweep.points_of([
            self.line(8, 1, False, -10), self.line(8, 1.1, True, 20),
            self.line(64, 1, False, 30), self.line(64, 1.11, True, -40),
            self.line(0, 5, True, 900, count=0)])
        self.assertEqual(explain_sweep.verdict(points), (2, 1, 25, 30))


class LaterRounds(unittest.TestCase):
    def test_leave_out_what_was_far_behind_its_own_library(self):
        measurement = measure.Measurement(options(), ["openmpi"])
        case = ("shm", 2, "broadcast")
        measurement.results = [
            result("openmpi", "default", 1, 10), result("openmpi", "staged", 1, 14),
            result("openmpi", "default", 1, 10, 4096), result("openmpi", "staged", 1, 16, 4096),
            result("mpich", "default", 1, 1), result("mpich", "default", 1, 1, 4096)]
        sizes = lambda config, number: measurement.hopeful_sizes(case, "openmpi", config, number)
        self.assertEqual(sizes("staged", 1), [8, 4096])
        self.assertEqual(sizes("staged", 2), [8])
        self.assertEqual(sizes("default", 2), [8, 4096])
        self.assertEqual(sizes("gave nothing", 2), [])
        measurement.results.append({**result("openmpi", "far", 1, 40), "barrier_us": [0.3, 0.3]})
        self.assertEqual(sizes("far", 2), [])
        for entry in measurement.results[:2]:
            entry["barrier_us"] = [0.1, 0.1]
        self.assertEqual(sizes("far", 2), [8], "the others were measured with near cores")
        measurement.results.append({**result("openmpi", "best far", 1, 20),
                                    "barrier_us": [0.3, 0.3]})
        self.assertEqual(sizes("far", 2), [8], "far cores do not decide")
        measurement.results.append({**result("openmpi", "far", 2, 16), "barrier_us": [0.1, 0.1]})
        self.assertEqual(sizes("far", 3), [], "1.6 times the best with near cores")


class Programs(unittest.TestCase):
    def lines_of(self, script, limit, wanted):
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as errors:
            runner = measure.Runner(options(limit=limit))
            found = runner.lines_of([["bash", "-c", script, directory]], {}, errors, directory,
                                    wanted)
            left = [entry for entry in Path("/proc").glob("[0-9]*/cmdline")
                    if directory.encode() in self.content(entry)]
        return (*found, left)

    @staticmethod
    def content(path):
        try:
            return path.read_bytes()
        except OSError:  # it ended meanwhile
            return b""

    def test_lines_before_the_limit_count_and_nothing_is_left_running(self):
        # The child has left the session, as a launcher's processes on other hosts have.
        script = """echo banner; echo '{"bytes": 8}'
                    setsid bash -c 'trap "" TERM; while :; do sleep 1; done' "$0" & sleep 1000"""
        lines, why, left = self.lines_of(script, 1, 2)
        self.assertEqual(lines, [{"bytes": 8}])
        self.assertIn("for one size", why)
        self.assertEqual(left, [])

    def test_an_early_end_is_no_limit(self):
        lines, why, _ = self.lines_of("""echo '{"bytes": 8}'; exit 1""", 60, 2)
        self.assertEqual((lines, why), ([{"bytes": 8}], ""))


class Floor(unittest.TestCase):
    # Sizes go up: a call of several rounds follows calls of one, and pieces of several sizes.
    SIZES = [4, 4096, 40_000, 1 << 20]

    def setUp(self):
        if backends.missing("floor"):
            self.skipTest("the floor is built for x86-64 only")

    def check(self, transport, config, setting, collective, ranks):
        if not backends.has("floor", transport, config, collective):
            return
        lines, why = measure.Runner(options()).run("floor", "shm", ranks, setting, collective,
                                                   self.SIZES, True)
        if config == "copy" and "does not copy" in why:
            return
        self.assertEqual((why, len(lines)), ("", len(self.SIZES)), (config, collective))
        for line in lines:
            self.assertEqual((line["wrong"], line["checked"]), (0, True),
                             (config, collective, line["bytes"]))

    def test_every_way_gives_the_right_results(self):
        for config, setting in backends.CONFIGURATIONS["floor"]["shm"].items():
            if config in ("staged-16K", "staged-256K", "staged-256K-past"):
                continue
            for collective in measure.COLLECTIVES:
                ranks = 3 if collective in ("all_reduce", "reduce", "alltoall") else 2
                self.check("shm", config, setting, collective, ranks)

    def test_over_tcp_gives_the_right_results(self):
        for config, setting in backends.CONFIGURATIONS["floor"]["tcp"].items():
            here = backends.env(**{**setting.environment, "FLOOR_INTERFACE": "lo"})
            for collective in measure.COLLECTIVES:
                self.check("tcp", config, here, collective, 2)

    def test_of_two_levels_gives_the_right_results(self):
        # Each half of the ranks has shared memory of its own, as if it were on a host of its own.
        for config, setting in backends.two_levels("lo").items():
            ranks = 6 if config in ("leaders", "levels-64K-yield") else 4
            for collective in measure.COLLECTIVES:
                self.check("both", config, setting, collective, ranks)


class Hocket(unittest.TestCase):
    def run_hocket(self, collective, sizes, **more):
        runner = measure.Runner(options())
        setting = backends.Setting(memory="alloc", **more)
        return runner.run("hocket", "shm", 2, setting, collective, sizes, True)

    def test_all_collectives_are_measured_and_right(self):
        for collective in measure.COLLECTIVES:
            lines, why = self.run_hocket(collective, [4, 4096, 1 << 20])
            self.assertEqual(why, "")
            self.assertEqual([line["bytes"] for line in lines], [4, 4096, 1 << 20])
            for line in lines:
                self.assertEqual((line["wrong"], line["checked"]), (0, True))
                self.assertGreater(line["p50_us"], 0)

    def test_latency_is_measured_between_the_ranks_of_pairs_and_not_of_the_floor(self):
        measurement = measure.Measurement(
            argparse.Namespace(transports=["shm"], ranks=[2, 3, 4],
                                  collectives=["latency", "barrier"]), ["hocket"])
        self.assertEqual(list(measurement.cases()),
                         [("shm", ranks, collective) for ranks in (2, 3, 4)
                          for collective in ("latency", "barrier")
                          if (ranks, collective) != (3, "latency")])
        for peer, has in ("hocket", True), ("openmpi", True), ("gloo", False), ("floor", False):
            self.assertEqual(backends.has(peer, "shm", "staged-64K", "latency"), has, peer)

    def test_a_wrong_result_is_found(self):
        # So large that the time is up after the least number of calls: two trials, three timed.
        spoiled = {"LD_PRELOAD": SPOILER, "SPOIL_CALL": "4", "SPOIL_RANK": "1", "SPOIL_BIT": "30"}
        lines, why = self.run_hocket("all_reduce", [16 << 20], environment=spoiled)
        self.assertEqual((why, lines[0]["iterations"]), ("", 3))
        self.assertEqual(lines[0]["wrong"], 2)  # against the reference, and between the ranks


if __name__ == "__main__":
    unittest.main()
