//go:build kube

package deploy_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

// testPeers starts two replicas of a release whose replicas find each other in
// EndpointSlices, with the rights that the chart grants: they join, and a third does from
// when its pod is told.
func testPeers(t *testing.T, c *kubekit.Cluster, binary string) {
	ip := outward(t)
	helm(t, c, "install", "pair", chart, "-n", "prod", "--set", "cluster.peers=endpointslices,pool.create=true,pool.matchLabels.app=vllm")
	_, _, args := container(t, c, "pair-epp")
	if !slices.Contains(args, "--cluster-peers-service=prod/pair-epp-peers") || slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--cluster-join") }) {
		t.Fatalf("arguments %q", args)
	}
	var admins []string
	for i := range 3 {
		admin, _, args := container(t, c, "pair-epp")
		gossip := freeAt(t, ip)
		name := fmt.Sprintf("pair-epp-%d", i)
		for j, a := range args {
			for flag, value := range map[string]string{"--cluster-bind=": gossip, "--cluster-stream-bind=": freeAt(t, ip), "--cluster-advertise=": ip, "--name=": name} {
				if strings.HasPrefix(a, flag) {
					args[j] = flag + value
				}
			}
		}
		// A port of its own stands for an address of its own: all are on one machine.
		_, port, _ := strings.Cut(gossip, ":")
		c.Create(kubeapi.Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}, "prod", fmt.Sprintf(
			`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":"pair-epp-peers"}},"addressType":"IPv4",
			"endpoints":[{"addresses":[%q],"conditions":{"ready":false},"targetRef":{"kind":"Pod","name":%[1]q,"namespace":"prod"}}],"ports":[{"name":"gossip","port":%[3]s}]}`, name, ip, port))
		log := run(t, c, binary, "pair-epp", args, "POD_NAME="+name)
		admins = append(admins, admin)
		for _, a := range admins {
			c.Until(fmt.Sprintf("%d replicas know each other", i+1), func() bool {
				out, err := exec.Command(binary, "members", "--admin", a, "-o", "json").Output()
				var members []json.RawMessage
				return err == nil && json.Unmarshal(out, &members) == nil && len(members) == i+1
			})
		}
		if strings.Contains(readFile(t, log), "missing right: apiGroups [\"discovery") {
			t.Error("the chart's rights are not enough")
		}
	}
}

// outward is an address of this machine that is not loopback: the API server takes no
// other as an endpoint.
func outward(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr().String()
		}
	}
	t.Fatal("this machine has no address but loopback, which the API server takes for no endpoint")
	return ""
}

func freeAt(t *testing.T, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return net.JoinHostPort(ip, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}
