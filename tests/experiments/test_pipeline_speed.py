from experiments import pipeline_speed


def test_the_table_has_a_positive_speed_for_each_pipeline(capsys):
    pipeline_speed.main(pipeline_speed.Benchmark(batch_size=4, length=16, seconds=0.01, repeats=1))
    heading, rule, *rows = capsys.readouterr().out.splitlines()
    assert heading.count("|") == rule.count("|") == 3
    speeds = {row.split("|")[1].strip(): int(row.split("|")[2].replace(",", "")) for row in rows}
    assert {"Lanes", "RandomCrops", "Blocks", "GeneratorWindows"} < set(speeds)
    assert min(speeds.values()) > 0
