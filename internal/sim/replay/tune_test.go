package replay

import (
	"context"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-epp/grapevine/indexer"
	"github.com/grapevine-epp/grapevine/picker"
)

type par map[string]float64

type exp struct {
	p   par
	rho map[indexer.EndpointID]*ew
	cap map[indexer.EndpointID]float64
}
type ew struct {
	v    float64
	at   time.Time
	n, w float64
}

func (e *ew) now(t time.Time, tau float64) float64 {
	return e.v * math.Exp(-t.Sub(e.at).Seconds()/tau)
}

func (x *exp) Handle(c *picker.Cycle, plan *picker.Plan) error {
	p := x.p
	best, bc := 0, math.Inf(1)
	var bo float64
	n := c.Len()
	sumRate := 0.0
	minWait, sumRho, sumWait := math.Inf(1), 0.0, 0.0
	for k := range n {
		v := c.At(k)
		w := v.Cost.Wait(&v.Load, c.Now)
		minWait = min(minWait, w)
		sumWait += w / float64(n)
		sumRate += v.Load.Rate / float64(n)
		if e := x.rho[v.ID]; e != nil {
			sumRho += e.now(c.Now, p["tau"])
		}
	}
	rhoMean := sumRho / float64(n)
	for k := range n {
		v := c.At(k)
		w := c.Work(k)
		own := v.Cost.Prefill(w)
		wait := v.Cost.Wait(&v.Load, c.Now)
		if p["mem"] > 0 && v.Capacity > 0 {
			ratio := 1.0
			if l := &v.Load; l.Context > 0 && v.Sampled {
				ratio = min(max(v.KVUse*v.Capacity/float64(l.Context), .2), 1)
			}
			if p["ratio"] > 0 {
				ratio = p["ratio"]
			}
			ex := ratio*float64(v.Load.Tokens+int64(w.Input)) - v.Capacity*p["full"]
			if ex > 0 && v.Load.Rate > 0 {
				wait += p["mem"] * ex / (ratio * float64(v.Load.Tokens+1)) * float64(v.Load.Requests) / v.Load.Rate
			}
		}
		dec := float64(v.Load.Requests - v.Load.Waiting)
		chunks := math.Ceil(float64(w.New) / 8192)
		rho := 0.0
		if e := x.rho[v.ID]; e != nil {
			rho = e.now(c.Now, p["tau"])
		}
		rr := p["mix"]*rhoMean + (1-p["mix"])*rho
		slack := max(1-rr, p["slack"])
		busy := wait + own/2
		if p["mode"] == 1 {
			busy = (p["wmix"]*sumWait + (1-p["wmix"])*wait + own/2) / slack
		}
		ext := p["own"]*own + p["dec"]*own*dec + (p["rate"]+min(p["press"]*sumWait, p["maxp"]))*own*(p["rmix"]*sumRate+(1-p["rmix"])*v.Load.Rate)*min(busy, p["horizon"]) +
			p["slow"]*(v.Cost.PerSeq+v.Cost.PerContext*float64(w.Input))
		ext += p["decl"] * (v.Cost.PerSeq*dec + v.Cost.PerContext*float64(v.Load.Context))
		ext += p["slowd"] * dec * (v.Cost.PerSeq + v.Cost.PerContext*float64(w.Input))
		ext += p["queued"] * own * float64(v.Load.Waiting)
		ext += p["rho"] * rho
		cost := wait + own + chunks*v.Cost.Base*p["base"] + ext
		if cost < bc {
			best, bc, bo = k, cost, own
		}
	}
	plan.Order = append(plan.Order, int32(best))
	id := c.At(best).ID
	e := x.rho[id]
	if e == nil {
		e = &ew{at: c.Now}
		x.rho[id] = e
	}
	e.v = e.now(c.Now, p["tau"]) + bo/p["tau"]
	e.at = c.Now
	return nil
}

var defPar = par{"own": .5, "dec": .06, "rate": .15, "slow": 20, "tau": 60, "slack": .1, "horizon": 1e9, "base": 1, "full": 1, "maxp": 4}

func (p par) with(s string) par {
	out := par{}
	for k, v := range p {
		out[k] = v
	}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		var x float64
		fmt.Sscan(v, &x)
		out[k] = x
	}
	return out
}

func expPolicy(p par) Policy {
	return Policy{Name: "exp", Rules: func() (*picker.Rules, error) {
		return &picker.Rules{Handler: &exp{p: p, rho: map[indexer.EndpointID]*ew{}}}, nil
	}}
}

type scenario struct {
	name string
	tr   *Trace
	base map[string]*Result
}

func scenarios(t *testing.T) []*scenario {
	var out []*scenario
	length := 30 * time.Minute
	var seeds []uint64
	for _, f := range strings.Fields(os.Getenv("SEEDS")) {
		var s uint64
		fmt.Sscan(f, &s)
		seeds = append(seeds, s)
	}
	for _, f := range strings.Fields(os.Getenv("W")) { // name:sat:load,load
		parts := strings.Split(f, ":")
		var sat float64
		fmt.Sscan(parts[1], &sat)
		for _, l := range strings.Split(parts[2], ",") {
			var load float64
			fmt.Sscan(l, &load)
			for _, seed := range seeds {
				var tr *Trace
				if strings.Contains(parts[0], "/") {
					full, err := OpenTrace(parts[0], ReadOptions{})
					if err != nil {
						t.Fatal(err)
					}
					tr = full.Scale(ScaleOptions{Rate: sat * load * 8, Seed: seed})
				} else {
					w, err := WorkloadByName(parts[0])
					if err != nil {
						t.Fatal(err)
					}
					tr = w.Generate(GenerateOptions{Rate: sat * load * 8, Seed: seed, Length: length})
				}
				nm := parts[0]
				if i := strings.LastIndex(nm, "/"); i >= 0 {
					nm = nm[i+1 : i+6]
				}
				out = append(out, &scenario{name: fmt.Sprintf("%.6s@%s", nm, l), tr: tr, base: map[string]*Result{}})
			}
		}
	}
	return out
}

func (s *scenario) run(t *testing.T, p Policy) *Result {
	r, err := Run(context.Background(), Case{Trace: s.tr, Policy: p, Seed: 1, Warmup: s.tr.Length / 5, Speculate: specFlag()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTune(t *testing.T) {
	sc := scenarios(t)
	names := []string{"unified", "lmetric", "sticky"}
	for _, s := range sc {
		for _, n := range names {
			p, _ := PolicyByName(n)
			s.base[n] = s.run(t, p)
		}
	}
	keys := []string{}
	seen := map[string]bool{}
	for _, s := range sc {
		if !seen[s.name] {
			seen[s.name] = true
			keys = append(keys, s.name)
		}
	}
	_ = sort.Strings
	show := func(label string, get func(s *scenario) *Result) {
		g, n := 0.0, 0.0
		fmt.Printf("%-34s", label)
		for _, k := range keys {
			var p90, tp, m, best float64
			for _, s := range sc {
				if s.name != k {
					continue
				}
				r := get(s)
				u := s.base["unified"]
				b := math.Inf(1)
				for _, nm := range names {
					b = min(b, s.base[nm].TTFT.P90)
				}
				p90 += r.TTFT.P90 / u.TTFT.P90
				best += r.TTFT.P90 / b
				tp += r.TPOT.Mean / u.TPOT.Mean
				m++
				g += math.Log(r.TTFT.P90 / b)
				n++
			}
			fmt.Printf(" |%5.2f %5.2f t%.2f", p90/m, best/m, tp/m)
		}
		fmt.Printf(" || %.3f\n", math.Exp(g/n))
	}
	fmt.Printf("%-34s", "")
	for _, k := range keys {
		var p float64
		m := 0.0
		for _, s := range sc {
			if s.name == k {
				p += s.base["unified"].TTFT.P90
				m++
			}
		}
		fmt.Printf(" |%-10s%6.2f", k, p/m)
	}
	fmt.Println()
	for _, n := range names {
		show(n, func(s *scenario) *Result { return s.base[n] })
	}
	if os.Getenv("DEF") != "" {
		p, _ := PolicyByName("default")
		show("default", func(s *scenario) *Result { return s.run(t, p) })
	}
	for _, v := range strings.Split(os.Getenv("V"), ";") {
		pr := defPar.with(v)
		show(v, func(s *scenario) *Result { return s.run(t, expPolicy(pr)) })
	}
}

func specFlag() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("SPEC"))
	return d
}
