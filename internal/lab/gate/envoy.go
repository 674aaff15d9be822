package gate

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/extproc/envoyconf"
	"github.com/grapevine-epp/grapevine/internal/lab/bench"
	"github.com/grapevine-epp/grapevine/internal/lab/rig"
)

// envoy streams answers of 50 chunks through a real Envoy with the resilient configuration:
// messages per answer, and CPU of Envoy and replica against Envoy and no-op.
func (s *session) envoy(r *running) error {
	if s.Envoy == "" {
		return nil
	}
	targets := make([]string, r.Endpoints)
	for i := range targets {
		targets[i] = fmt.Sprintf("%s:%d", address(i), r.engines.port)
	}
	bodies, err := s.open(s.noop.extProc, kb(1, 16))
	if err != nil {
		return err
	}
	defer bodies.Close()
	local, err := startLocalNoop(s, targets[0])
	if err != nil {
		return err
	}
	defer local.Kill()
	var proxies []*proxy
	defer func() {
		for _, p := range proxies {
			p.Kill()
		}
	}()
	for i, m := range []*member{local, r.members[0]} {
		p, err := s.startEnvoy(r, fmt.Sprint("envoy-", i), m, targets)
		if err != nil {
			return err
		}
		proxies = append(proxies, p)
	}
	for _, rate := range []int{30, 200} {
		if err := s.throughEnvoy(rate, proxies, bodies); err != nil {
			return err
		}
	}
	return nil
}

// proxy is an Envoy with the process that it asks.
type proxy struct {
	*rig.Process
	picker     *member
	url, admin string
}

// startLocalNoop starts a no-op that sends requests to an engine that exists.
func startLocalNoop(s *session, destination string) (*member, error) {
	ports, err := rig.FreePorts(1)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p, err := rig.Start(s.Dir, "noop-envoy", s.Lab, "noop", "--listen", at, "--destination", destination)
	return &member{Process: p, extProc: at}, err
}

func (s *session) startEnvoy(r *running, name string, m *member, targets []string) (*proxy, error) {
	box := &rig.Rig{Options: rig.Options{Envoy: s.Envoy}, Dir: r.dir}
	p, url, err := box.StartEnvoy(s.ctx, name, envoyconf.Params{Endpoints: targets, ExtProc: []string{m.extProc}})
	if err != nil {
		return nil, err
	}
	return &proxy{Process: p, picker: m, url: url, admin: box.EnvoyAdmin}, nil
}

// throughEnvoy sends requests at a rate through both proxies in turn.
func (s *session) throughEnvoy(rate int, proxies []*proxy, bodies *bench.Client) error {
	const slice = 4 * time.Second
	var ratios, messages []float64
	n := uint64(0)
	for round := range max(s.Rounds/4, 3) + 1 {
		var cost [2]float64
		for i, p := range proxies {
			before, err := p.usage()
			if err != nil {
				return err
			}
			count := int(slice.Seconds() * float64(rate))
			if err := p.send(bodies, &n, count, rate); err != nil {
				return err
			}
			after, err := p.usage()
			if err != nil {
				return err
			}
			// Request headers, body and response headers at least. Fewer mean that Envoy did not ask.
			if sent := after.messages - before.messages; round > 0 && sent < 2*float64(count) {
				return fmt.Errorf("gate: Envoy sent %.0f messages for %d requests", sent, count)
			}
			cost[i] = (after.cpu - before.cpu) / float64(count)
			if i == 1 && round > 0 {
				messages = append(messages, (after.messages-before.messages)/float64(count))
			}
		}
		if round > 0 {
			ratios = append(ratios, cost[1]/cost[0])
		}
	}
	name := fmt.Sprintf("envoy/answer/%ds", rate)
	s.add(result(name, Ratio, "x no-op", ratios))
	s.add(result(name+"/messages", Ratio, "messages", messages))
	return nil
}

// usage is CPU seconds of Envoy and picker, and messages that Envoy sent.
type usage struct{ cpu, messages float64 }

var sentMessages = regexp.MustCompile(`(?m)ext_proc\.(?:[^:\s]*\.)?stream_msgs_sent: (\d+)$`)

func (p *proxy) usage() (u usage, err error) {
	for _, pid := range []int{p.Cmd.Process.Pid, p.picker.pid()} {
		used, err := processCPU(pid)
		if err != nil {
			return u, err
		}
		u.cpu += used.Seconds()
	}
	resp, err := http.Get("http://" + p.admin + "/stats?filter=stream_msgs_sent")
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	for _, m := range sentMessages.FindAllSubmatch(raw, -1) {
		n, _ := strconv.ParseFloat(string(m[1]), 64)
		u.messages += n
	}
	return u, err
}

// send sends count requests at a rate, and waits for their answers.
func (p *proxy) send(bodies *bench.Client, n *uint64, count, rate int) error {
	var wg sync.WaitGroup
	failed := make(chan error, count)
	start := time.Now()
	for i := range count {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		*n++
		body := bodies.Body(*n)
		wg.Go(func() {
			resp, err := http.Post(p.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				failed <- err
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				failed <- fmt.Errorf("gate: Envoy answered %s: %w", resp.Status, err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
