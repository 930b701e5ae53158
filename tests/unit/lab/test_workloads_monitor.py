from lab.workloads.monitor import inspect_documents


def test_the_work_depends_on_how_many_documents_are_inspected():
    assert inspect_documents(2) == inspect_documents(2) != inspect_documents(3)
