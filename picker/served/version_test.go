package served

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// asks sets an engine's version on a path; "": none.
func (e *engines) asks(path, address, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions[path+"@"+address] = version
}

func (e *engines) versionReads(address string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pages[address]
}

// TestAnotherVersionIsAnotherEngine: a changed version starts a new incarnation within half a
// minute, once, unless that is already known.
func TestAnotherVersionIsAnotherEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, vllm("m"), vllm("m"), vllm("m"))
		defer r.Close()
		lives := map[string]int{}
		pool.Subscribe(func(c endpoint.Change) {
			for _, ep := range c.Restarted {
				lives[ep.Address]++
			}
		})
		wait := func() { time.Sleep(defaultEvery + time.Second); synctest.Wait() }
		for _, a := range addrs {
			e.asks("/version", a, "0.32.0")
		}
		time.Sleep(versionPause) // the page was missing at the first read
		wait()
		ids := map[string]*endpoint.Endpoint{}
		for _, ep := range pool.Snapshot().Endpoints {
			ids[ep.Address] = ep
			if v := r.Version(ep.ID); v != "0.32.0" || len(lives) != 0 {
				t.Fatalf("%s: version %q, lives %v", ep.Address, v, lives)
			}
		}
		e.asks("/version", addrs[0], "0.33.0")
		e.asks("/version", addrs[1], "0.33.0")
		pool.Renew(ids[addrs[1]]) // its page has shown another process
		wait()
		if v := r.Version(ids[addrs[0]].ID); v != "0.33.0" || lives[addrs[0]] != 1 || lives[addrs[1]] != 1 || lives[addrs[2]] != 0 {
			t.Errorf("version %q, lives %v", v, lives)
		}
		wait()
		if lives[addrs[0]] != 1 {
			t.Errorf("one change of version caused %d incarnations", lives[addrs[0]])
		}
		for i := range 20 { // two engines behind one address
			e.asks("/version", addrs[2], []string{"0.33.0", "0.32.0"}[i%2])
			wait()
		}
		if n := lives[addrs[2]]; n != 2 {
			t.Errorf("two engines behind one address caused %d incarnations", n)
		}
	})
}

// TestVersionsAreReadSeldom: with each list, and every five minutes if the page is expensive or
// missing.
func TestVersionsAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, e, r, addrs := rig(t, vllm("m"), vllm("m"), vllm("m"))
		defer r.Close()
		pool.Snapshot().Endpoints[1].SetGauges(endpoint.Gauges{At: time.Now(), Engine: endpoint.EngineSGLang})
		e.asks("/version", addrs[0], "1")
		e.asks("/server_info", addrs[1], "1")
		time.Sleep(versionPause + time.Second) // the page was missing at first
		synctest.Wait()
		var before [3]int
		for i, a := range addrs {
			before[i] = e.versionReads(a)
		}
		time.Sleep(4 * versionPause)
		synctest.Wait()
		for i, want := range []int{int(4 * versionPause / defaultEvery), 4, 4} {
			if n := e.versionReads(addrs[i]) - before[i]; n < want-1 || n > want+1 {
				t.Errorf("engine %d: asked %d times in %v, want %d", i, n, 4*versionPause, want)
			}
		}
		if v := r.Version(pool.Snapshot().Endpoints[1].ID); v != "1" {
			t.Errorf("SGLang's version %q", v)
		}
	})
}
