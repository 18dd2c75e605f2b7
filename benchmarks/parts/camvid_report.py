def write_report(records, out): return str(len(records.runs))
