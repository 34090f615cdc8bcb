"""The files of a run: the folder, the segments that grow, the merged results, checkpoints and the status.

No HDF5 lock is ever taken: every HDF5 file is read and written through a Python file object, so that a filesystem
without locks (NFS, Lustre without `flock`) and readers that hold a file open cannot stop a run.
"""
