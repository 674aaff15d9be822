package link

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster/federation"
	"github.com/grapevine-epp/grapevine/cluster/federation/filter"
)

// Status is the output of `grapevine federation`.
type Status struct {
	Cluster  string            `json:"cluster"`
	Line     string            `json:"line"` // summary
	Filters  bool              `json:"filters"`
	Secrets  []string          `json:"secrets,omitempty"` // short names of the accepted secrets, the one in use first
	Problem  string            `json:"secrets_problem,omitempty"`
	Clusters []ClusterStatus   `json:"clusters,omitempty"`
	Exports  []OwnStatus       `json:"exports,omitempty"`
	Refused  map[string]uint64 `json:"refused,omitempty"`
	Dropped  uint64            `json:"dropped"`
}

// ClusterStatus is another cluster.
type ClusterStatus struct {
	Name     string       `json:"name"`
	State    string       `json:"state"`
	Reason   string       `json:"reason,omitempty"`
	Several  bool         `json:"several,omitempty"` // several replica groups use this name
	Replica  string       `json:"replica,omitempty"`
	AgeS     float64      `json:"age_s"` // since the last message; -1: never
	LeaseS   float64      `json:"lease_s"`
	RTTMS    float64      `json:"rtt_ms"`
	Rates    Rates        `json:"bytes_per_s"`
	Sessions int          `json:"sessions"` // its replicas that ask here
	Made     int          `json:"made_filter_bytes"`
	Pools    []PoolStatus `json:"pools,omitempty"`
}

// PoolStatus is a pool of another cluster.
type PoolStatus struct {
	Pool       string  `json:"pool"`
	State      string  `json:"state"`
	Reason     string  `json:"reason,omitempty"`
	Endpoints  int     `json:"endpoints"`
	Requests   int64   `json:"requests"`
	Waiting    int64   `json:"waiting"`
	WaitS      float64 `json:"wait_s"`
	Saturation float64 `json:"saturation"`
	Blocks     int     `json:"filter_blocks"`
	Bytes      int     `json:"filter_bytes"`
	Filter     string  `json:"filter,omitempty"`        // why it is incomplete
	Secret     string  `json:"filter_secret,omitempty"` // short name of its secret
}

// OwnStatus is a pool of this cluster.
type OwnStatus struct {
	Pool         string      `json:"pool"`
	Draining     bool        `json:"draining,omitempty"`
	Hot          int         `json:"hot_blocks"`
	HotNote      string      `json:"hot_note,omitempty"` // why the set is incomplete
	Acknowledged []AckStatus `json:"told"`
	Omitted      string      `json:"omitted,omitempty"` // parts that do not fit in messages
}

// AckStatus is another cluster's state for one of our exports.
type AckStatus struct {
	Cluster string `json:"cluster"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Import  string `json:"import,omitempty"` // whether its InferencePoolImport names this cluster; "": it has no objects
}

// importOf describes whether a cluster shows an export as an object.
func importOf(t *federation.ExportAck) string {
	switch {
	case t.State == federation.Silent || t.State == federation.Refused || t.Shown == federation.NoObjects:
		return ""
	case t.Shown == federation.IsShown:
		return "there"
	case t.ShownReason != "":
		return "none: " + t.ShownReason
	}
	return "not yet"
}

// Status returns the current status.
func (l *Link) Status() *Status { return l.StatusOf(l.View()) }

// StatusOf is Status for a given view of this link.
func (l *Link) StatusOf(v *federation.View) *Status {
	now := time.Now()
	s := &Status{Cluster: v.Self, Line: line(v, now), Filters: v.Secret != nil}
	l.mu.Lock()
	traffic := map[string]federation.Traffic{}
	for _, t := range l.core.Traffic() {
		traffic[t.Cluster] = t
	}
	rates := l.meter.rates
	s.Dropped = l.dropped
	s.Refused = maps.Clone(l.refused)
	for r, n := range l.core.Refusals() {
		s.Refused[r] += n
	}
	hot := maps.Clone(l.hot)
	s.Problem = l.secrets.problem()
	l.mu.Unlock()
	for _, secret := range [...]*filter.Secret{v.Secret, v.Also} {
		if secret != nil {
			s.Secrets = append(s.Secrets, nameOf(secret))
		}
	}
	if s.Problem != "" {
		s.Line += "; the secrets cannot be read again"
	}
	for _, c := range v.Clusters {
		t := traffic[c.Name]
		one := ClusterStatus{
			Name: c.Name, Replica: c.Replica, AgeS: -1, LeaseS: max(c.Until.Sub(now).Seconds(), 0), RTTMS: c.RTT.Seconds() * 1e3,
			Rates: rates[c.Name], Sessions: t.Sessions, Made: t.SourceBytes,
		}
		if !c.LastMessage.IsZero() {
			one.AgeS = now.Sub(c.LastMessage).Seconds()
		}
		one.State, one.Reason = shown(c.State, c.Reason, c.Until, now)
		if c.Several {
			one.Several, one.Reason = true, strings.TrimPrefix(one.Reason+"; "+severalGroups, "; ")
		}
		for _, p := range c.Pools {
			one.Pools = append(one.Pools, poolStatus(p, now))
		}
		s.Clusters = append(s.Clusters, one)
	}
	for i := range v.Exports {
		s.Exports = append(s.Exports, ownStatus(&v.Exports[i], hot[hotKey{v.Exports[i].Pool, v.Secret}]))
	}
	return s
}

// severalGroups is the problem if several replica groups use a cluster's name.
const severalGroups = "several replica groups use this name: two clusters have it, or its replicas cannot reach each other"

// shown returns a state and its reason as of now.
func shown(state federation.State, reason string, until, now time.Time) (string, string) {
	if at := stateAt(state, until, now); at != state {
		return at.String(), "its lease has ended"
	}
	return state.String(), reason
}

func poolStatus(p *federation.Remote, now time.Time) PoolStatus {
	s := PoolStatus{
		Pool: p.Pool.String(), Endpoints: p.Endpoints(""), Requests: p.Load.Requests, Waiting: p.Load.Waiting, WaitS: p.Load.Wait.Seconds(),
		Saturation: p.Load.Saturation, Blocks: int(p.FilterHead.Blocks), Bytes: p.Filter.Bytes(), Filter: p.FilterNote,
	}
	if n := p.FilterHead.Omitted; n > 0 && s.Filter == "" {
		s.Filter = fmt.Sprintf("%d found no room", n)
	}
	if p.Secret != nil {
		s.Secret = nameOf(p.Secret)
	}
	s.State, s.Reason = shown(p.State, p.Reason, p.Until, now)
	return s
}

func ownStatus(o *federation.ExportView, hot *filter.Hot) OwnStatus {
	s := OwnStatus{Pool: o.Pool.String(), Draining: o.Draining, Omitted: o.Omitted}
	if hot != nil {
		s.Hot = hot.Len()
	}
	for _, t := range o.Acks {
		s.Acknowledged = append(s.Acknowledged, AckStatus{t.Cluster, t.State.String(), t.Reason, importOf(&t)})
	}
	return s
}

// line summarizes the federation in one line, problems first.
func line(v *federation.View, now time.Time) string {
	var silent, several []string
	live := 0
	for _, c := range v.Clusters {
		if stateAt(c.State, c.Until, now) == federation.Live {
			live++
		} else {
			silent = append(silent, c.Name)
		}
		if c.Several {
			several = append(several, c.Name)
		}
	}
	if len(v.Clusters) == 0 {
		return "no other cluster is configured"
	}
	parts := []string{fmt.Sprintf("%d of %s heard", live, count(len(v.Clusters), "other cluster"))}
	if len(silent) > 0 {
		parts = append(parts, "silent: "+strings.Join(silent, ", "))
	}
	if len(several) > 0 {
		parts = append(parts, "several replica groups are named "+strings.Join(several, ", "))
	}
	if n := omitted(v); n > 0 {
		parts = append(parts, count(n, "export")+" not known everywhere")
	}
	if v.Secret == nil {
		parts = append(parts, "no secret: prefixes are not shared")
	}
	return strings.Join(parts, "; ")
}

// omitted counts exports that are missing at a cluster that may see them.
func omitted(v *federation.View) (n int) {
	for i := range v.Exports {
		if slices.ContainsFunc(v.Exports[i].Acks, func(t federation.ExportAck) bool { return t.State == federation.Silent }) {
			n++
		}
	}
	return n
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
