//go:build linux

package clustertest_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// device opens a TUN device in this process's network namespace, assigns the address with a /24
// mask, and brings it and the loopback device up.
func device(addr netip.Addr) (fd int, err error) {
	fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening /dev/net/tun (is the tun module loaded, and the device given to this container?): %w", err)
	}
	dev, err := unix.NewIfreq("eth0")
	if err != nil {
		return -1, err
	}
	dev.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, dev); err != nil {
		return -1, fmt.Errorf("making a TUN device (sysctl kernel.apparmor_restrict_unprivileged_userns=0, or root, may help): %w", err)
	}
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctl)
	for _, step := range []struct {
		what    string
		request uint
		name    string
		set     func(*unix.Ifreq) error
	}{
		{"loopback up", unix.SIOCSIFFLAGS, "lo", flags(unix.IFF_UP | unix.IFF_RUNNING)},
		{"address", unix.SIOCSIFADDR, "eth0", func(r *unix.Ifreq) error { return r.SetInet4Addr(addr.AsSlice()) }},
		{"netmask", unix.SIOCSIFNETMASK, "eth0", func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{"device up", unix.SIOCSIFFLAGS, "eth0", flags(unix.IFF_UP | unix.IFF_RUNNING)},
	} {
		r, err := unix.NewIfreq(step.name)
		if err == nil {
			err = step.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(ctl, step.request, r)
		}
		if err != nil {
			return -1, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return fd, nil
}

func flags(v uint16) func(*unix.Ifreq) error {
	return func(r *unix.Ifreq) error { r.SetUint16(v); return nil }
}

// give sends a file descriptor over a unix socket and closes it.
func give(conn *os.File, fd int) error {
	err := unix.Sendmsg(int(conn.Fd()), []byte{0}, unix.UnixRights(fd), nil, 0)
	return errors.Join(err, unix.Close(fd))
}

// taken receives a file descriptor.
func taken(conn *net.UnixConn) (*os.File, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, fmt.Errorf("the process exited before it sent its device (see its standard error): %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, errors.New("it handed over no device")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "tun"), nil
}
