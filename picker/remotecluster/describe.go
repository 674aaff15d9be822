package remotecluster

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/picker/cycle"
	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// A nominal request, for which a pool announces its waiting time.
const (
	nominalTokens = 1000
	nominalAnswer = 200
)

// Wait and queue length at which an endpoint counts as saturated. A saturated pool announces that
// it should get no more requests.
const (
	fullWait  = 20.0 // seconds
	fullQueue = 64   // requests waiting in an engine
)

// Describe fills in a pool's announcement for other clusters: ready endpoints, load and cost. base
// has the configured fields.
func Describe(p *endpoint.Pool, base federation.Export, direct bool, now time.Time) federation.Export {
	e := base
	e.Ready, e.Engines, e.Direct, e.Load, e.Capacity = nil, 0, nil, federation.Load{}, federation.Capacity{}
	d := describer{e: &e, now: now, least: math.Inf(1)}
	for _, ep := range p.Snapshot().Endpoints {
		if ep.Down() {
			continue
		}
		d.ready(ep)
		if ep.Role&endpoint.RoleDecode == 0 {
			continue
		}
		d.add(ep)
		if direct && ep.Role&endpoint.RoleDecode != 0 {
			e.Direct = append(e.Direct, ep.Address)
		}
	}
	d.finish()
	return e
}

// Queue adds the time that queued requests need before a new one would reach an engine.
func Queue(e *federation.Export, seconds float64) {
	e.Load.Wait += inSeconds(seconds)
	e.Load.MeanWait += inSeconds(seconds)
	e.Load.Saturation = min(e.Load.Saturation+max(seconds, 0)/fullWait, 1)
}

// describer sums up endpoints.
type describer struct {
	e       *federation.Export
	now     time.Time
	engines float64
	sized   float64 // endpoints that report their cache size
	least   float64
	waits   float64
	full    float64
	kv      float64
	price   endpoint.Cost
}

// ready counts an endpoint for each model that it serves.
func (d *describer) ready(ep *endpoint.Endpoint) {
	names := ep.Models
	if list, _ := ep.EngineModels(); list != nil {
		names = nil
		for _, m := range list.Models {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		r := federation.Ready{Model: name, Role: uint8(ep.Role), Count: 1}
		i := slices.IndexFunc(d.e.Ready, func(o federation.Ready) bool { return o.Model == r.Model && o.Role == r.Role })
		if i >= 0 {
			d.e.Ready[i].Count++
		} else {
			d.e.Ready = append(d.e.Ready, r)
		}
	}
	slices.SortFunc(d.e.Ready, func(a, b federation.Ready) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Role, b.Role))
	})
}

// add adds the load of an endpoint that generates responses.
func (d *describer) add(ep *endpoint.Endpoint) {
	v := cycle.View{Endpoint: ep, Cost: ep.Cost(), Reading: ep.Reading(d.now.UnixNano())}
	ep.AddLoad(&v.Load, d.now.UnixNano())
	rank := v.PerRank()
	wait := rank.Wait(d.now, nominalTokens, nominalAnswer)
	l := &d.e.Load
	l.Requests += max(v.Load.Requests, 0)
	l.Waiting += max(v.Load.Waiting, 0)
	l.Queued += max(v.Load.Prefill, 0)
	d.engines++
	d.least, d.waits = min(d.least, wait), d.waits+wait
	d.full += min(max(wait/fullWait, float64(rank.Waiting)/fullQueue), 1)
	d.kv += v.KVUse
	if v.Capacity > 0 {
		d.sized++
		d.e.Capacity.KVTokens += int64(v.Capacity)
	}
	c := v.Cost
	d.price.Base += c.Base
	d.price.PerToken += c.PerToken
	d.price.PerPair += c.PerPair
	d.price.Step += c.Step
	d.price.PerSeq += c.PerSeq
	d.price.PerContext += c.PerContext
}

// finish converts sums to means.
func (d *describer) finish() {
	if d.engines == 0 {
		return
	}
	if d.sized > 0 { // the others are assumed to be alike
		d.e.Capacity.KVTokens = int64(float64(d.e.Capacity.KVTokens) * d.engines / d.sized)
	}
	d.e.Engines = int(d.engines)
	l, p, n := &d.e.Load, &d.e.Price, d.engines
	l.Wait, l.MeanWait = inSeconds(d.least), inSeconds(d.waits/n)
	l.Saturation, l.KVUsage = d.full/n, min(d.kv/n, 1)
	p.Base, p.PerToken, p.PerPair = d.price.Base/n, d.price.PerToken/n, d.price.PerPair/n
	p.Step, p.PerSeq, p.PerContext = d.price.Step/n, d.price.PerSeq/n, d.price.PerContext/n
}

func inSeconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), 3600) * float64(time.Second))
}
