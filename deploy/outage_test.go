//go:build kube

package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// testOutage stops the API server. All replicas are restarted one after the other under load; then
// all but one stop and return without their volumes: no request fails. Then all are killed at once,
// and serve again from their volumes; and again, when one volume is left.
func testOutage(t *testing.T, c *kubekit.Cluster, binary string) {
	const namespace = "outage"
	c.Namespace(namespace)
	for _, name := range []string{"vllm-0", "vllm-1"} {
		startEngine(t, c, namespace, name)
	}
	helm(t, c, "install", "llama", chart, "-n", namespace, "--set", "standalone.enabled=true,standalone.selector=app=vllm,lingerSeconds=2")
	k := podkit.Open(t, c, imagesOf(t, binary))
	k.Expose(namespace)
	var pods []*podkit.Pod
	for range 3 {
		pods = append(pods, k.Deployment(namespace, "llama-epp"))
	}
	for _, p := range pods {
		p.WaitReady()
	}
	waitForGroup(t, c, pods)
	k.Deployment(namespace, "llama-epp-envoy").WaitReady()
	base := "http://" + c.Kubectl("get", "service", "llama-epp-envoy", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}")
	c.Until("requests are answered", func() bool { return complete(base) == "" })

	c.StopServer()
	defer c.StartServer()
	l := startLoad(base)
	for _, p := range pods {
		terminate(t, p)
		p.Restart()
		p.WaitServing()
		waitForList(t, c, p, "peer")
	}
	l.check(t, "all replicas were restarted")

	l = startLoad(base)
	for _, p := range pods[1:] {
		terminate(t, p)
		p.EmptyVolumes()
	}
	c.Until("the replica that is left has served for a while", func() bool { return l.requests.Load() > 200 })
	for _, p := range pods[1:] {
		p.Restart()
		p.WaitServing()
		waitForList(t, c, p, "peer")
	}
	l.check(t, "one replica was left")

	for _, volumes := range []int{3, 1} {
		for _, p := range pods {
			p.Kill()
		}
		for _, p := range pods[volumes:] {
			p.EmptyVolumes()
		}
		for _, p := range pods {
			p.Restart()
		}
		for i, p := range pods {
			p.WaitServing()
			if i < volumes {
				waitForList(t, c, p, "peer", "file")
			} else {
				waitForList(t, c, p, "peer")
			}
		}
		c.Until("requests are answered from the stored lists", func() bool { return complete(base) == "" })
	}
	if page := get(t, "http://"+pods[0].IP+":9090/readyz?verbose"); !strings.Contains(page, "2 known, from ") {
		t.Errorf("readyz does not name the origin of the list:\n%s", page)
	}
}

func terminate(t *testing.T, p *podkit.Pod) {
	t.Helper()
	if err := p.Terminate(); err != nil {
		t.Error(err)
	}
}

// waitForList waits until the replica uses a list of both engines that has one of these origins.
func waitForList(t *testing.T, c *kubekit.Cluster, p *podkit.Pod, origins ...string) {
	t.Helper()
	c.Until(p.Name+" uses the list of a "+strings.Join(origins, " or a "), func() bool {
		page := get(t, "http://"+p.IP+":9090/metrics")
		return strings.Contains(page, "\ngrapevine_picker_endpoints 2\n") && slices.ContainsFunc(origins, func(origin string) bool {
			return strings.Contains(page, fmt.Sprintf("grapevine_discovery_list_origin{origin=%q} 1", origin))
		})
	})
}

// load sends requests until stop.
type load struct {
	requests, failed atomic.Int64
	first            atomic.Value // first problem
	end              chan struct{}
	wg               sync.WaitGroup
}

func startLoad(base string) *load {
	l := &load{end: make(chan struct{})}
	for range 4 {
		l.wg.Go(func() {
			for {
				select {
				case <-l.end:
					return
				default:
				}
				l.requests.Add(1)
				if problem := complete(base); problem != "" {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, problem)
				}
			}
		})
	}
	return l
}

// check stops the load and reports failed requests.
func (l *load) check(t *testing.T, while string) {
	t.Helper()
	close(l.end)
	l.wg.Wait()
	t.Logf("%d requests without the API server while %s, %d failed", l.requests.Load(), while, l.failed.Load())
	if l.failed.Load() > 0 || l.requests.Load() < 100 {
		t.Errorf("while %s, %d of %d requests failed, the first: %v", while, l.failed.Load(), l.requests.Load(), l.first.Load())
	}
}
