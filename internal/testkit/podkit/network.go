package podkit

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const (
	nodeIP   = "10.244.0.1" // of the node, and of its end of the bridge
	serverIP = "10.96.0.1"  // of Service kubernetes; the API server's certificate has it
	dnsIP    = "10.96.0.10"
)

// network is the network of this process. Two kits share it, as two clusters do; the address of a
// pod decides which cluster it sees.
var network struct {
	mu     sync.Mutex
	last   int             // of the addresses given out
	kits   map[string]*Kit // by address of a pod
	recent *Kit            // for connections from the node
	taken  map[string]bool // cluster addresses with ports that are listened at
}

// openNetwork builds the bridge and starts the servers that pods expect.
func openNetwork() error {
	// Without a fixed address, the bridge uses the lowest address of its interfaces. Each new pod could
	// change that address and interrupt connections.
	network.last, network.kits, network.taken = 1, map[string]*Kit{}, map[string]bool{}
	for _, args := range []string{
		"link set lo up", "link add pods address 02:00:00:00:00:01 type bridge", "addr add " + nodeIP + "/16 dev pods",
		"addr add " + serverIP + "/32 dev pods", "addr add " + dnsIP + "/32 dev pods", "link set pods up",
	} {
		if err := ip(args); err != nil {
			return err
		}
	}
	packets, err := net.ListenPacket("udp", net.JoinHostPort(dnsIP, "53"))
	if err != nil {
		return err
	}
	go serveDNS(packets)
	l, err := net.Listen("tcp", net.JoinHostPort(serverIP, "443"))
	if err != nil {
		return err
	}
	go forward(l, func(k *Kit) string { return strings.TrimPrefix(k.c.Config().Server, "https://") })
	return nil
}

func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// newAddress returns an unused address of the network.
func newAddress() string {
	network.mu.Lock()
	defer network.mu.Unlock()
	network.last++
	return fmt.Sprintf("10.244.%d.%d", network.last/250, network.last%250+1)
}

// NodeAddress returns a new address of the network at which this process can listen.
func NodeAddress(tb testing.TB) string {
	tb.Helper()
	address := newAddress()
	if err := ip("addr add " + address + "/16 dev pods"); err != nil {
		tb.Fatal(err)
	}
	return address
}

// NodeAddresses makes this process's listeners at 0.0.0.0 reachable at all addresses of a network in
// CIDR notation.
func NodeAddresses(tb testing.TB, cidr string) {
	tb.Helper()
	if err := ip("route add local " + cidr + " dev lo"); err != nil {
		tb.Fatal(err)
	}
}

// kitOf returns the kit of the pod at the other end of a connection.
func kitOf(remote net.Addr) *Kit {
	host, _, _ := net.SplitHostPort(remote.String())
	network.mu.Lock()
	defer network.mu.Unlock()
	if k := network.kits[host]; k != nil {
		return k
	}
	return network.recent
}

// sandbox is a network namespace that a waiting process holds open.
type sandbox struct {
	ip   string
	file string // of the namespace
	cmd  *exec.Cmd
}

// openSandbox creates a network namespace with an interface at an address.
func openSandbox(address string) (*sandbox, error) {
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	s := &sandbox{ip: address, file: fmt.Sprintf("/proc/%d/ns/net", pid), cmd: cmd}
	outer := fmt.Sprintf("v%d", pid)
	if err := ip(fmt.Sprintf("link add %s master pods type veth peer name eth0 netns %d", outer, pid)); err != nil {
		s.close()
		return nil, err
	}
	inside := func(args string) error {
		full := append([]string{"--net=" + s.file, "ip"}, strings.Fields(args)...)
		if out, err := exec.Command("nsenter", full...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	}
	for _, args := range []string{"link set lo up", "addr add " + address + "/16 dev eth0", "link set eth0 up", "route add default via " + nodeIP} {
		if err := inside(args); err != nil {
			s.close()
			return nil, err
		}
	}
	if err := ip("link set " + outer + " up"); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sandbox) close() {
	_ = s.cmd.Process.Kill() // it waits only for this
	_ = s.cmd.Wait()
}

// forward passes connections on to the address that target returns, as kube-proxy does.
func forward(l net.Listener, target func(*Kit) string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			k := kitOf(in.RemoteAddr())
			if k == nil {
				return
			}
			out, err := net.Dial("tcp", target(k))
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in) // either end may close first
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}

// serveDNS answers queries for Services.
func serveDNS(c net.PacketConn) {
	buf := make([]byte, 1<<12)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		addresses, found := []string(nil), false
		if k := kitOf(from); k != nil {
			addresses, found = k.resolve(q.Name.String())
		}
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}
		if !found {
			m.RCode = dnsmessage.RCodeNameError
		}
		m.Answers, m.Authorities, m.Additionals = nil, nil, nil
		for _, a := range addresses {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 5}, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(a).To4())},
				})
			}
		}
		if reply, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(reply, from) // the client asks again
		}
	}
}

// resolvConf is the file that the kubelet writes.
func resolvConf(dir, namespace string) (path string, err error) {
	path = filepath.Join(dir, "resolv.conf")
	text := fmt.Sprintf("search %s.svc.cluster.local svc.cluster.local cluster.local\nnameserver %s\noptions ndots:5\n", namespace, dnsIP)
	return path, os.WriteFile(path, []byte(text), 0o644)
}
