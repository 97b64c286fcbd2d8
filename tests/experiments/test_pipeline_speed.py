from experiments.benchmark import pipeline as pipeline_speed


def test_the_table_has_a_positive_speed_for_each_pipeline(capsys):
    pipeline_speed.main(["--smoke", "--batch-size", "4", "--sequence-length", "16"])
    heading, rule, *rows = capsys.readouterr().out.splitlines()
    assert heading.count("|") == rule.count("|") == 3
    speeds = {row.split("|")[1].strip(): int(row.split("|")[2].replace(",", "")) for row in rows}
    assert {"StatefulWindows", "RandomWindows", "SequentialWindows", "PythonGeneratorWindows"} < set(speeds)
    assert min(speeds.values()) > 0


def test_sizes_that_are_none_are_refused(fails):
    assert "--repeats 0" in fails(pipeline_speed.main, "--repeats", "0")
    assert "--batch-size 0" in fails(pipeline_speed.main, "--batch-size", "0")
