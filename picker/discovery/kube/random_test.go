//go:build kube

package kube

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit/kubekit"
	"github.com/grapevine-epp/grapevine/picker/discovery"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

var (
	changes = flag.Int("kube.changes", 1000, "random changes of a pool that are compared with file discovery")
	seed    = flag.Uint64("kube.seed", 1, "of these changes")
)

// world is the test's record of its writes.
type world struct {
	c        *kubekit.Cluster
	rand     *rand.Rand
	pods     map[string]*twin
	next     int
	selector string
	ports    []int
}

// twin is a pod in the form of an endpoints file entry.
type twin struct {
	ip, app, role string
	ready         bool
	restarts      int
}

// file returns the equivalent endpoints file.
func (w *world) file() string {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[name]
		if !p.ready || p.app != w.selector {
			continue
		}
		for i, port := range w.ports {
			full := name
			if len(w.ports) > 1 {
				full = fmt.Sprintf("%s-rank-%d", name, i)
			}
			fmt.Fprintf(&b, "- {name: %s, namespace: random, address: %s, port: %d, labels: {app: %s, llm-d.ai/role: %s}}\n", full, p.ip, port, p.app, p.role)
		}
	}
	return strings.TrimSuffix(b.String(), "endpoints:\n")
}

// change makes one random change and describes it.
func (w *world) change() string {
	names := slices.Sorted(maps.Keys(w.pods))
	roll := w.rand.IntN(100)
	if len(names) == 0 || roll < 25 && len(names) < 30 {
		w.next++
		name := fmt.Sprintf("pod-%d", w.next)
		p := &twin{ip: fmt.Sprintf("10.1.%d.%d", w.next/250, w.next%250+1), app: w.app(), role: w.role(), ready: true}
		if used := w.rand.IntN(10); used == 0 && w.next > 5 { // reuse another pod's address
			p.ip = fmt.Sprintf("10.1.%d.%d", (w.next-5)/250, (w.next-5)%250+1)
			for _, o := range w.pods {
				if o.ip == p.ip {
					p.ip = fmt.Sprintf("10.2.%d.%d", w.next/250, w.next%250+1)
				}
			}
		}
		w.pods[name] = p
		w.c.Pod("random", kubekit.Pod{Name: name, IP: p.ip, Labels: fmt.Sprintf(`{"app":%q,"llm-d.ai/role":%q}`, p.app, p.role)})
		return "new " + name
	}
	if len(names) > 0 {
		name := names[w.rand.IntN(len(names))]
		p := w.pods[name]
		switch {
		case roll < 45:
			delete(w.pods, name)
			w.c.Delete(kubekit.Pods, "random", name)
			return "delete " + name
		case roll < 70:
			p.ready = !p.ready
			w.c.Ready("random", name, p.ip, p.ready)
			return fmt.Sprintf("ready %s %v", name, p.ready)
		case roll < 80:
			p.role = w.role()
			w.c.Patch(kubekit.Pods, "random", name, fmt.Sprintf(`{"metadata":{"labels":{"llm-d.ai/role":%q}}}`, p.role))
			return "role " + name
		case roll < 88:
			p.app = w.app()
			w.c.Patch(kubekit.Pods, "random", name, fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, p.app))
			return "app " + name + " " + p.app
		case roll < 92:
			w.c.Patch(kubekit.Pods, "random", name, fmt.Sprintf(`{"metadata":{"annotations":{"example.org/noise":"%d"}}}`, w.rand.Int()))
			return "noise " + name
		}
	}
	if roll < 96 {
		w.selector = w.app()
		w.c.Patch(poolsV1, "random", "p", fmt.Sprintf(`{"spec":{"selector":{"matchLabels":{"app":%q}}}}`, w.selector))
		return "selector " + w.selector
	}
	w.ports = [][]int{{8000}, {8000, 8001}, {9000, 8000, 8001}}[w.rand.IntN(3)]
	var list []string
	for _, port := range w.ports {
		list = append(list, fmt.Sprintf(`{"number":%d}`, port))
	}
	w.c.Patch(poolsV1, "random", "p", fmt.Sprintf(`{"spec":{"targetPorts":[%s]}}`, strings.Join(list, ",")))
	return fmt.Sprint("ports ", w.ports)
}

func (w *world) app() string  { return []string{"vllm", "vllm", "vllm", "sglang"}[w.rand.IntN(4)] }
func (w *world) role() string { return []string{"decode", "prefill", "both"}[w.rand.IntN(3)] }

// testRandom changes a pool at random and compares the result with file discovery.
func testRandom(t *testing.T, c *kubekit.Cluster) {
	c.Namespace("random")
	c.Create(poolsV1, "random", poolJSON("p", vllm, 8000))
	v := open(t, c, Options{Pool: "p", Namespace: "random"})
	w := &world{c: c, rand: rand.New(rand.NewPCG(*seed, 0)), pods: map[string]*twin{}, selector: "vllm", ports: []int{8000}}
	for i := range *changes {
		what := w.change()
		want := specsOfFile(t, w.file())
		c.Until(fmt.Sprintf("change %d (seed %d): %s; want\n%s\nhave %s", i, *seed, what, w.file(), v.addrs()), func() bool { return sameSpecs(v.found().Specs, want) })
	}
	t.Logf("%d changes, %d tellings, %d endpoints at the end", *changes, v.times, len(v.found().Specs))
}

// specsOfFile parses a file as file discovery does.
func specsOfFile(t *testing.T, content string) (out []endpoint.Spec) {
	t.Helper()
	if content == "" {
		return nil
	}
	list, problems := discovery.Parse("endpoints.yaml", []byte(content))
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, content)
	}
	for _, e := range list {
		a, _ := e.Addr()
		out = append(out, e.Spec(a))
	}
	slices.SortFunc(out, func(a, b endpoint.Spec) int { return a.Addr.Compare(b.Addr) })
	return out
}

// sameSpecs compares with a file's specs, which have no incarnations and ranks.
func sameSpecs(got, want []endpoint.Spec) bool {
	return slices.EqualFunc(got, want, func(a, b endpoint.Spec) bool {
		known := a.Instance != ""
		a.Instance, a.Rank = "", 0
		return known && a.Equal(b)
	})
}
