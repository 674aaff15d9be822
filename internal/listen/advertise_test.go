package listen

import (
	"net"
	"strings"
	"testing"
)

func TestAdvertised(t *testing.T) {
	at := func(s string) addrString { return addrString(s) }
	if got, err := Advertised("", at("10.0.0.1:9002")); err != nil || got != "10.0.0.1:9002" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Advertised("10.0.0.7:1", at("0.0.0.0:9002")); err != nil || got != "10.0.0.7:1" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Advertised("", at("[::]:9002")); err != nil || strings.HasPrefix(got, "[::]") || !strings.HasSuffix(got, ":9002") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Advertised("picker:9002", at("0.0.0.0:9002")); err == nil {
		t.Error("a name was accepted")
	}
}

type addrString string

func (addrString) Network() string  { return "tcp" }
func (a addrString) String() string { return string(a) }

// A host without IPv4 is reached at its IPv6 address, never at loopback.
func TestReachable(t *testing.T) {
	f := func(want string, addrs ...string) {
		t.Helper()
		var list []net.Addr
		for _, a := range addrs {
			ip, n, err := net.ParseCIDR(a)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		got := "none"
		if at, ok := reachable(list); ok {
			got = at.String()
		}
		if got != want {
			t.Errorf("%v: %s, want %s", addrs, got, want)
		}
	}
	f("10.0.0.7", "127.0.0.1/8", "fd00::2/64", "10.0.0.7/24", "10.0.0.8/24")
	f("fd00::2", "127.0.0.1/8", "::1/128", "fe80::1/64", "fd00::2/64")
	f("none", "127.0.0.1/8", "::1/128", "169.254.0.1/16")
}
