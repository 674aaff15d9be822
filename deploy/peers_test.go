//go:build kube

package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/kubeapi"
	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// testPeers starts replicas of a release whose replicas find each other in EndpointSlices, with the
// rights that the chart grants: each joins as soon as its pod has a slice.
func testPeers(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "slices"
	c.Namespace(namespace)
	startEngine(t, c, namespace, "vllm-0")
	helm(t, c, "install", "pair", chart, "-n", namespace, "--set", "cluster.peers=endpointslices,pool.create=true,pool.matchLabels.app=vllm")
	k := podkit.Open(t, c, imagesOf(t, binary))
	k.Expose(namespace)
	var pods []*podkit.Pod
	for range 3 {
		p := k.Deployment(namespace, "pair-epp")
		// No controller runs, so the test writes the slice.
		c.Create(kubeapi.Resource{Group: "discovery.k8s.io", Version: "v1", Plural: "endpointslices"}, namespace, fmt.Sprintf(
			`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":%q,"labels":{"kubernetes.io/service-name":"pair-epp-peers"}},"addressType":"IPv4",
			"endpoints":[{"addresses":[%q],"conditions":{"ready":false},"targetRef":{"kind":"Pod","name":%[1]q,"namespace":%[3]q}}],"ports":[{"name":"gossip","port":7946}]}`, p.Name, p.IP, namespace))
		pods = append(pods, p)
		waitForGroup(t, c, pods)
		if strings.Contains(p.Log("epp"), "missing right: apiGroups [\"discovery") {
			t.Errorf("%s misses a right that the chart should grant", p.Name)
		}
	}
}
