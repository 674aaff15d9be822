package kube

import (
	"testing"

	"github.com/grapevine-epp/grapevine/picker/discovery"
)

// TestRefusedAddresses: addresses that cannot be an engine's are no endpoints, and only their pods
// are affected.
func TestRefusedAddresses(t *testing.T) {
	for ip, want := range map[string]string{
		"10.0.0.1": "", "fd00::1": "", "100.64.0.1": "", "": "",
		"0.0.0.0": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified",
		"255.255.255.255": "broadcast",
		"224.0.0.1":       "multicast", "ff02::1": "multicast",
		"169.254.169.254": "link-local", "::ffff:169.254.169.254": "link-local", "fe80::1": "link-local",
		"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback",
	} {
		addr, refused := addressRules{}.choose(ip, nil)
		switch {
		case want == "" && (refused != "" || addr.IsValid() != (ip != "")):
			t.Errorf("%s: address %v, refused: %s; want it accepted", ip, addr, refused)
		case want != "" && (addr.IsValid() || refused != "address "+unmapped(ip)+" of the pod's status is refused: "+want):
			t.Errorf("%s: address %v, refused: %q; want %s", ip, addr, refused, want)
		}
	}
}

func unmapped(ip string) string {
	const mapped = "::ffff:"
	if len(ip) > len(mapped) && ip[:len(mapped)] == mapped {
		return ip[len(mapped):]
	}
	return ip
}

// TestRefusedPodInStatus: a refused pod is named and counted, and the list stays current.
func TestRefusedPodInStatus(t *testing.T) {
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("good", "10.0.0.1", "", "")
	api.pod("meta", "169.254.169.254", "", "")
	api.pod("zero", "0.0.0.0", "", "")
	v := openFake(t, server, Options{})
	v.want("10.0.0.1:8000")
	v.wantIn(invalidOf, "pod meta: address 169.254.169.254 of the pod's status is refused: link-local")
	v.wantIn(invalidOf, "pod zero: address 0.0.0.0 of the pod's status is refused: unspecified")
	v.wantOK()
	if n := v.Status().Refused; n != 2 {
		t.Errorf("%d refused addresses, want 2", n)
	}
}

// TestLoopbackNeedsLocalServer: loopback pods are accepted only if the API server is on this machine.
func TestLoopbackNeedsLocalServer(t *testing.T) {
	for server, want := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://localhost:6443": true,
		"https://10.96.0.1:443": false, "https://[fd00::1]:443": false, "https://kubernetes.default.svc": false, "https://127.0.0.1.example.org": false,
	} {
		addr, _ := rulesFor("", server).choose("127.0.0.1", nil)
		if addr.IsValid() != want {
			t.Errorf("server %s: loopback pod accepted: %v, want %v", server, addr.IsValid(), want)
		}
	}
}

// TestPreferredFamily chooses among the addresses of single-stack and dual-stack pods.
func TestPreferredFamily(t *testing.T) {
	dual, only4, only6 := []string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1"}, []string{"fd00::1"}
	for _, x := range []struct {
		family, podIP string
		podIPs        []string
		want          string
	}{
		{"", "10.0.0.1", dual, "10.0.0.1"},
		{"", "10.0.0.1", nil, "10.0.0.1"},
		{FamilyIPv4, "10.0.0.1", dual, "10.0.0.1"},
		{FamilyIPv6, "10.0.0.1", dual, "fd00::1"},
		{FamilyIPv4, "fd00::1", []string{"fd00::1", "10.0.0.1"}, "10.0.0.1"},
		{FamilyIPv6, "10.0.0.1", only4, "10.0.0.1"}, // none of the preferred family
		{FamilyIPv4, "fd00::1", only6, "fd00::1"},
		{FamilyIPv4, "10.0.0.1", nil, "10.0.0.1"},
		{FamilyIPv4, "fd00::1", []string{"fd00::1", "nonsense", "::ffff:10.0.0.2"}, "10.0.0.2"},
		{FamilyIPv6, "10.0.0.1", []string{"10.0.0.1", "fe80::1"}, "invalid IP"}, // refused, not replaced
	} {
		addr, _ := addressRules{family: x.family}.choose(x.podIP, x.podIPs)
		if addr.String() != x.want {
			t.Errorf("family %q, podIP %s, podIPs %v: address %s, want %s", x.family, x.podIP, x.podIPs, addr, x.want)
		}
	}
}

// TestDualStackPod: a pod's endpoint has the address of the preferred family.
func TestDualStackPod(t *testing.T) {
	api, server := newFakeAPI(t)
	api.pool("p", "vllm", 8000)
	api.pod("both", "10.0.0.1", "", `,"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]`)
	api.pod("old", "10.0.0.2", "", `,"podIPs":[{"ip":"10.0.0.2"}]`)
	openFake(t, server, Options{IPFamily: FamilyIPv6}).want("10.0.0.2:8000 [fd00::1]:8000")
	openFake(t, server, Options{}).want("10.0.0.1:8000 10.0.0.2:8000")
	if _, err := Open(Options{IPFamily: "ipv5", Pool: "p", Sink: discovery.Sink{Update: func(discovery.Found) {}}}); err == nil {
		t.Error("Open() accepts the family ipv5")
	}
}
