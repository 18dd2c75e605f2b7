"""What is wrong with a data set on disk, found before a run; loading it is mmengine's."""
