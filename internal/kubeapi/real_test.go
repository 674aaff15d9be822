//go:build kube

package kubeapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
)

var realSlices = kubeapi.Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}

// sliceJSON is an EndpointSlice as the Kubernetes controller writes it.
func sliceJSON(name, service, family string, endpoints ...string) string {
	return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},
		"addressType":%q,"endpoints":[%s],"ports":[{"name":"gossip-udp","port":7946,"protocol":"UDP"},{"name":"gossip","port":7946},{"name":"streams","port":7947}]}`,
		name, service, family, strings.Join(endpoints, ","))
}

func endpointJSON(pod, ip, conditions string) string {
	return fmt.Sprintf(`{"addresses":[%q],"conditions":%s,"targetRef":{"kind":"Pod","name":%q,"namespace":"group"}}`, ip, conditions, pod)
}

// TestMembersOnRealServer follows a Service's EndpointSlices on a real API server. It covers pods
// that are not ready, other Services, both families, renamed slices, an unreachable server, and
// permissions that are missing, revoked and restored.
func TestMembersOnRealServer(t *testing.T) {
	c := kubekit.Start(t)
	c.Namespace("group")
	const (
		ready    = `{"ready":true,"serving":true,"terminating":false}`
		starting = `{"ready":false,"serving":false,"terminating":false}`
		ending   = `{"ready":false,"serving":true,"terminating":true}`
	)
	members, err := kubeapi.FollowMembers(c.As("epp"), kubeapi.MembersOptions{
		Service: "peers", Namespace: "group", PortName: "gossip", Port: 1, Self: "pod-0", Like: netip.MustParseAddr("10.0.0.1"),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(members.Close)
	want := func(addrs, fault string) {
		t.Helper()
		c.Until(addrs+" "+fault, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := members.Addresses(ctx)
			return strings.Join(got, " ") == addrs && (err == nil) == (fault == "") && (err == nil || strings.Contains(err.Error(), fault))
		})
	}
	const missing = `missing right: apiGroups ["discovery.k8s.io"] resources ["endpointslices"] verbs ["list"] in a Role of namespace group`
	want("", missing)
	c.Grant("group", "peers", "epp", "list,watch discovery.k8s.io endpointslices")
	want("", "")
	c.Create(realSlices, "group", sliceJSON("s1", "peers", "IPv4", endpointJSON("pod-0", "10.0.0.1", ready), endpointJSON("pod-1", "10.0.0.2", starting)))
	c.Create(realSlices, "group", sliceJSON("s2", "others", "IPv4", endpointJSON("web", "10.0.0.9", ready)))
	c.Create(realSlices, "group", sliceJSON("s6", "peers", "IPv6", endpointJSON("pod-1", "fd00::2", starting), endpointJSON("pod-6", "fd00::6", ready)))
	want("10.0.0.2:7946 [fd00::6]:7946", "")

	// The same pods in a slice with another name, one terminating and one replaced.
	c.Create(realSlices, "group", sliceJSON("s3", "peers", "IPv4", endpointJSON("pod-1", "10.0.0.2", ending), endpointJSON("pod-2", "10.0.0.3", starting)))
	c.Delete(realSlices, "group", "s6")
	c.Delete(realSlices, "group", "s1")
	want("10.0.0.3:7946", "")

	// Revoked and restored: known addresses stay, next to the error.
	c.Grant("group", "peers", "epp", "get core services")
	c.StopServer() // an open watch outlives the permission
	want("10.0.0.3:7946", "EndpointSlices of group/peers")
	c.StartServer()
	want("10.0.0.3:7946", "missing right")
	c.Grant("group", "peers", "epp", "list,watch discovery.k8s.io endpointslices")
	c.Create(realSlices, "group", sliceJSON("s4", "peers", "IPv4", endpointJSON("pod-3", "10.0.0.4", ready)))
	want("10.0.0.3:7946 10.0.0.4:7946", "")
}
