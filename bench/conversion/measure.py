"""Measures one command: time, memory, bytes read, sectors written."""

import os
import re
import subprocess
import sys
import tempfile
import time

DROP_CACHES = "/proc/sys/vm/drop_caches"


def can_drop_caches():
    return os.access(DROP_CACHES, os.W_OK)


def settle(cold):
    """Flushes everything to the device; if cold, also drops the page cache."""
    os.sync()
    if cold:
        with open(DROP_CACHES, "w") as file:
            file.write("3")


def seconds(command, then_sync=False):
    """Wall time of a command, including a sync afterwards if the command does not sync itself."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
    if then_sync:
        os.sync()
    return time.perf_counter() - begin


def peak_bytes(command, status=0):
    """Peak resident memory of the process, as the kernel last reported it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                               stderr=None if status == 0 else subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
        peak = max(peak, 1024 * int(found[1]) if found else 0)
        time.sleep(0.0005)
    if process.returncode != status:
        sys.exit(f"{' '.join(command)} failed")
    return peak


def bytes_read(command, directory):
    """Bytes read through user space from files in `directory`, by strace."""
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run(["strace", "-f", "-y", "-e", "trace=read,pread64,readv,preadv", "-o", log.name,
                        *command], check=True, capture_output=True)
        total, waiting = 0, set()
        for line in map(str.strip, log):
            thread = line.split()[0]
            ours = f"<{directory}/" in line or ("resumed>" in line and thread in waiting)
            waiting.discard(thread)
            if ours and line.endswith("<unfinished ...>"):
                waiting.add(thread)
            found = re.search(r" = (\d+)$", line)
            total += int(found[1]) if ours and found else 0
        return total


def device_of(directory):
    """The block device of a directory, in the kernel's statistics."""
    number = os.stat(directory).st_dev
    return f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat"


def bytes_written(stat):
    with open(stat) as file:
        return 512 * int(file.read().split()[6])
