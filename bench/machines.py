"""Two machines of Debian's kernels with real network cards and disks, in QEMU (scripts/guest): what bench/power and bench/two-machines
share. A command is a file that the machine finds, its output comes over the console."""
import atexit, os, pathlib, queue, random, re, shutil, signal, subprocess, threading, time

top = pathlib.Path(__file__).resolve().parent.parent
scratch = top / "target/guest/machines"

LOOP = """export PATH=/run/bin:$PATH
mkdir -p /run/bin
ln -s {binary} /run/bin/linerate
hostname {name}
ip link set lo up
modprobe {driver}
until card=$(ls /sys/class/net | grep -v lo); do sleep 0.1; done
ip link set $card address {mac} name eth0
sysctl -qw net.ipv6.conf.eth0.addr_gen_mode=1
ip link set eth0 up
ip address add {address}/24 dev eth0
number=0
while number=$((number + 1)); do
    until [ -e /run/host{orders}/$number ]; do sleep 0.05; done
    bash /run/host{orders}/$number </dev/null >/run/said 2>&1 && status=0 || status=$?
    cat /run/said; echo; echo "DONE $number $status"
done
"""


# A server that may be tuned, in place of the one before.
SERVE = """
[ ! -e /run/serve ] || kill $(cat /run/serve) || true
{environment} linerate serve --bind {address} --allow-tune >/run/log 2>&1 & echo $! >/run/serve
until grep -q 'id is' /run/log; do sleep 0.1; done
"""


class PowerCut(Exception):
    """The machine went off, which the command may have wanted."""


class Machine:
    def __init__(self, name, kernel, binary, number, nic, model="e1000e", disk=True):
        self.name, self.kernel = name, kernel
        self.address = f"10.77.0.{number}"
        mac = f"52:54:00:77:00:{number:02x}"
        self.nic = f"{nic},model={model},mac={mac}"
        self.home = scratch / name
        shutil.rmtree(self.home, ignore_errors=True)
        self.orders = self.home / "orders"
        self.orders.mkdir(parents=True)
        driver = {"rtl8139": "8139cp", "virtio-net-pci": "virtio_net"}.get(model, model)
        self.script = self.home / "script"
        self.script.write_text(LOOP.format(name=name, binary=os.path.realpath(binary), driver=driver, mac=mac, address=self.address, orders=self.orders))
        self.disk = self.home / "disk" if disk else None
        if disk:
            with open(self.disk, "wb") as image:
                image.truncate(1 << 30)
            subprocess.run(["mkfs.ext4", "-q", "-F", self.disk], check=True)
        self.guest = None
        atexit.register(self.off)

    def start(self):
        for order in self.orders.iterdir():
            order.unlink()
        self.number, self.lines = 0, queue.Queue()
        environment = {**os.environ, "GUEST_NIC": self.nic, "GUEST_SECONDS": "7200"}
        environment.update({"GUEST_DISK": str(self.disk)} if self.disk else {})
        self.guest = subprocess.Popen([top / "scripts/guest", self.kernel, self.script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env=environment, start_new_session=True)
        threading.Thread(target=self.read, args=(self.guest, self.lines), daemon=True).start()

    def read(self, guest, lines):
        with open(self.home / "log", "a") as log:
            for line in guest.stdout:
                log.write(line)
                log.flush()
                lines.put(line.rstrip())
        lines.put(None)

    def run(self, command, within=300):
        """Its status and what it printed. Within seconds; a machine that goes off meanwhile is a PowerCut."""
        self.number += 1
        order = self.orders / str(self.number)
        order.with_suffix(".new").write_text(command)
        order.with_suffix(".new").rename(order)
        text, until = [], time.monotonic() + within
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                self.off()
                raise TimeoutError(f"{self.name}: not done in {within} s: {command}\n" + "\n".join(text[-20:])) from None
            if line is None:
                self.off()
                raise PowerCut("\n".join(text))
            if done := re.match(r"DONE (\d+) (\d+)", line):
                assert int(done[1]) == self.number, line
                return int(done[2]), "\n".join(text).strip()
            text.append(line)

    def must(self, command, within=300):
        status, text = self.run(command, within)
        assert status == 0, f"{self.name}: {command}: status {status}\n{text}"
        return text

    def serve(self, environment=""):
        self.must(SERVE.format(environment=environment, address=self.address))

    def off(self):
        """Off, as without power: nothing that the machine has not written to its disk is on it."""
        if self.guest and self.guest.poll() is None:
            os.killpg(self.guest.pid, signal.SIGKILL)
        if self.guest:
            self.guest.wait()
        self.guest = None


def pair(kernel, binary, model="e1000e", **more):
    """Two of them with a cable between them."""
    ends = random.sample(range(20000, 30000), 2)
    cable = lambda here, there: f"socket,udp=127.0.0.1:{there},localaddr=127.0.0.1:{here}"
    near = Machine("near", kernel, binary, 1, cable(*ends), model, **more)
    far = Machine("far", kernel, binary, 2, cable(*reversed(ends)), model, **more)
    return near, far


def introduce(near, far):
    """Has near trust far, which serves it and may be tuned by it."""
    far.serve()
    line = far.must(f"linerate trust invite --address {far.address} --name {near.name} --tune").splitlines()[-1]
    near.must(f"linerate trust accept '{line}'")
