package podkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// process is a process to start in a container.
type process struct {
	Host     string   // host name
	Network  string   // file of the pod's network namespace
	Root     string   // folder that becomes the root of its file system
	Mounts   []mount  // in the order of mounting
	ReadOnly bool     // of the root
	Dir      string   // working directory
	Path     string   // program, as seen from Root
	Args     []string // with the program's name
	Env      []string
	User     int
	Group    int
	Groups   []int
	NoNew    bool // no new privileges
	DropAll  bool // all capabilities
}

// Machine is a file system and a program that runs in it, in this process's network.
type Machine struct {
	Files map[string]string // paths in the machine -> files and folders of this one, read only
	Dirs  []string          // empty folders
	Args  []string          // with the program's path
	Env   []string
}

// Program returns the command that runs a program in a machine, as root. Its end ends all processes
// that it has started.
func Program(tb testing.TB, m Machine) *exec.Cmd {
	tb.Helper()
	root := tb.TempDir()
	x := process{
		Host: "machine", Network: "/proc/self/ns/net", Root: root, Dir: "/", Path: m.Args[0], Args: m.Args, Env: m.Env,
		Mounts: []mount{{From: "proc", To: "/proc"}, {From: "tmpfs", To: "/dev/shm"}},
	}
	for _, d := range devices {
		x.Mounts = append(x.Mounts, mount{From: d, To: d})
	}
	for to, from := range m.Files {
		x.Mounts = append(x.Mounts, mount{From: from, To: to, ReadOnly: true})
	}
	for _, d := range m.Dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	cmd, err := x.command(unix.CLONE_NEWPID)
	if err != nil {
		tb.Fatal(err)
	}
	return cmd
}

// command returns the command that becomes the process, in new namespaces.
func (p *process) command(namespaces uintptr) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = []string{envContainer + "=" + string(config)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | namespaces, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// mount is a bind mount, or a proc or tmpfs file system.
type mount struct {
	From     string // file or folder of the machine; or "proc", "tmpfs"
	To       string // path in the container
	ReadOnly bool
}

// runContainer turns this process into p: it returns only after an error. The process already has
// separate mount and host name namespaces.
func runContainer(config string) error {
	var p process
	if err := json.Unmarshal([]byte(config), &p); err != nil {
		return err
	}
	runtime.LockOSThread() // exec keeps the network namespace of the calling thread
	network, err := os.Open(p.Network)
	if err != nil {
		return err
	}
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(p.Host)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := p.mountAll(); err != nil {
		return err
	}
	if err := unix.Chroot(p.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir(p.Dir); err != nil {
		return err
	}
	os.Clearenv()
	for _, v := range p.Env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	if p.Path, err = exec.LookPath(p.Path); err != nil { // by the container's PATH
		return err
	}
	if err := p.dropRights(); err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", p.Path, syscall.Exec(p.Path, p.Args, p.Env))
}

func (p *process) mountAll() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := bind(p.Root, p.Root, false); err != nil {
		return err
	}
	for name, target := range map[string]string{"stdin": "0", "stdout": "1", "stderr": "2", "fd": ""} {
		if err := os.MkdirAll(filepath.Join(p.Root, "dev"), 0o755); err != nil {
			return err
		}
		link := filepath.Join(p.Root, "dev", name)
		if err := os.Symlink(strings.TrimSuffix("/proc/self/fd/"+target, "/"), link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for _, m := range p.Mounts {
		to := filepath.Join(p.Root, m.To)
		switch m.From {
		case "proc", "tmpfs":
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
			if err := unix.Mount(m.From, to, m.From, 0, ""); err != nil {
				return fmt.Errorf("mount %s: %w", m.To, err)
			}
			continue
		}
		if err := mountPoint(m.From, to); err != nil {
			return err
		}
		if err := bind(m.From, to, m.ReadOnly); err != nil {
			return err
		}
	}
	if p.ReadOnly {
		return remount(p.Root)
	}
	return nil
}

// mountPoint creates an empty file or folder, of the same kind as from.
func mountPoint(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(to, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func bind(from, to string, readOnly bool) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	if readOnly {
		return remount(to)
	}
	return nil
}

func remount(at string) error {
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount %s read-only: %w", at, err)
	}
	return nil
}

// dropRights sets user, groups and capabilities.
func (p *process) dropRights() error {
	if p.DropAll {
		for c := range unix.CAP_LAST_CAP + 1 {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0) // the kernel may have fewer
		}
	}
	if p.NoNew {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(p.Groups); err != nil {
		return err
	}
	if err := syscall.Setgid(p.Group); err != nil {
		return err
	}
	if err := syscall.Setuid(p.User); err != nil {
		return err
	}
	// A change of the user resets this.
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}
