//go:build kube

package deploy_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/internal/testkit/podkit"
)

// testOutage stops the API server. All replicas are restarted one after the other under load: no
// request fails. Then all are killed at once, and serve again from their volumes.
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
		if err := p.Terminate(); err != nil {
			t.Error(err)
		}
		p.Restart()
		p.WaitServing()
		c.Until(p.Name+" uses the list of a peer", func() bool {
			page := get(t, "http://"+p.IP+":9090/metrics")
			return strings.Contains(page, `grapevine_discovery_list_origin{origin="peer"} 1`) && strings.Contains(page, "\ngrapevine_picker_endpoints 2\n")
		})
	}
	l.stop()
	t.Logf("%d requests while all replicas were restarted without the API server, %d failed", l.requests.Load(), l.failed.Load())
	if l.failed.Load() > 0 || l.requests.Load() < 100 {
		t.Errorf("%d of %d requests failed, the first: %v", l.failed.Load(), l.requests.Load(), l.first.Load())
	}

	for _, p := range pods {
		p.Kill()
	}
	for _, p := range pods {
		p.Restart()
	}
	for _, p := range pods {
		p.WaitServing()
	}
	c.Until("requests are answered from the stored lists", func() bool { return complete(base) == "" })
	if page := get(t, "http://"+pods[0].IP+":9090/readyz?verbose"); !strings.Contains(page, "2 known, from ") {
		t.Errorf("readyz does not name the origin of the list:\n%s", page)
	}
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

func (l *load) stop() {
	close(l.end)
	l.wg.Wait()
}
