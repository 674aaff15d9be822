package server

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-epp/grapevine/cluster"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/internal/share/facts"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/explanation"
	"github.com/grapevine-epp/grapevine/picker/flow/gate"
)

// Limits of the decisions that a replica keeps.
const (
	decisionAge   = 10 * time.Minute
	leastKept     = 256 // the last ones are kept for longer
	decisionBytes = 32 << 20

	peerDecisionTime = time.Second // time limit for answers of the other replicas
	peerCandidates   = 16          // candidates in a decision that would be too large to send
	peerBytes        = 128 << 10
)

// retention returns how many decisions a replica keeps within a memory budget.
func retention(b *budget.Budget) picker.Retention {
	r := picker.Retention{Age: decisionAge, Least: leastKept, Bytes: decisionBytes}
	if b.Limit() > 0 {
		r.Bytes = min(r.Bytes, int(b.Share(budget.Records)/2))
	}
	return r
}

// groupDecisions finds decisions of this replica and of the others. It is safe for concurrent use.
type groupDecisions struct {
	Name    string // of this replica
	Node    *cluster.Node
	Grouped bool
	Records *picker.Records // of this replica
	Gate    *gate.Gate      // its waiting requests
	peers   *facts.Decisions
}

// newGroupDecisions registers the exchange with the group, before the node is opened.
func newGroupDecisions(d groupDecisions) *groupDecisions {
	d.peers = facts.NewDecisions(facts.DecisionOptions{Group: facts.Of(d.Node), Find: d.findForPeer})
	return &d
}

// id identifies a decision of this replica in the group.
func (d *groupDecisions) id(number uint64) string {
	return d.Node.Self().ID + "." + strconv.FormatUint(number, 10)
}

// find handles /debug/decisions. For an id it also asks the other replicas, unless local is
// set. silent names the replicas that did not answer.
func (d *groupDecisions) find(ctx context.Context, id string, n int, local bool) (found any, silent []string) {
	if id == "" {
		list := d.Records.Last(n)
		for i := range list {
			d.sign(&list[i])
		}
		return list, nil
	}
	list := []explanation.Explanation{}
	if e, ok := d.own(id); ok {
		list = append(list, e)
	}
	if !local && d.Grouped {
		var more []explanation.Explanation
		more, silent = d.askPeers(ctx, id)
		list = append(list, more...)
	}
	slices.SortStableFunc(list, func(a, b explanation.Explanation) int { return b.At.Compare(a.At) })
	return list, silent
}

// own returns this replica's decision about a request, by the request's id or the
// decision's.
func (d *groupDecisions) own(id string) (explanation.Explanation, bool) {
	if member, number, ok := cutLast(id, "."); ok && member == d.Node.Self().ID {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			e, found := d.Records.Numbered(n)
			d.sign(&e)
			return e, found
		}
	}
	e, ok := d.Gate.Explain(id) // a reused id may be queued now and have an earlier decision
	if placed, found := d.Records.Explain(id); found && (!ok || placed.At.After(e.At)) {
		e, ok = placed, true
	}
	d.sign(&e)
	return e, ok
}

// sign adds this replica's name and the decision's identifier.
func (d *groupDecisions) sign(e *explanation.Explanation) {
	e.Replica = d.Name
	if e.Number > 0 {
		e.Decision = d.id(e.Number)
	}
}

// findForPeer returns this replica's decision about a request for another replica, or nil. Of a
// decision that is too large, it sends the first candidates.
func (d *groupDecisions) findForPeer(id string) []byte {
	e, ok := d.own(id)
	if !ok {
		return nil
	}
	b, err := json.Marshal(e)
	if err == nil && len(b) > peerBytes {
		shorten(&e)
		b, err = json.Marshal(e)
	}
	if err != nil {
		return nil
	}
	return b
}

// shorten removes candidates until peerCandidates are left. The choice stays.
func shorten(e *explanation.Explanation) {
	kept := map[string]bool{e.Choice: true, e.RunnerUp: true}
	for _, c := range e.Candidates {
		if len(kept) < peerCandidates {
			kept[c.Endpoint] = true
		}
	}
	all := len(e.Candidates)
	e.Candidates = slices.DeleteFunc(e.Candidates, func(c explanation.Candidate) bool { return !kept[c.Endpoint] })
	e.Omitted += all - len(e.Candidates)
	for i := range e.Profiles {
		p := &e.Profiles[i]
		p.Rows = slices.DeleteFunc(p.Rows, func(r explanation.Row) bool { return !kept[r.Endpoint] })
	}
	e.Avoided, e.Health = e.Avoided[:min(len(e.Avoided), peerCandidates)], e.Health[:min(len(e.Health), peerCandidates)]
}

// askPeers asks the other replicas for their decision about a request.
func (d *groupDecisions) askPeers(ctx context.Context, id string) (list []explanation.Explanation, silent []string) {
	peers, _ := d.Node.Peers()
	names, ids := map[string]string{}, []string{}
	for _, p := range peers {
		if p.State == "up" {
			names[p.ID] = p.Name
			ids = append(ids, p.ID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, peerDecisionTime)
	defer cancel()
	for _, a := range d.peers.Ask(ctx, id, ids) {
		delete(names, a.Member)
		var e explanation.Explanation
		if a.Decision != nil && json.Unmarshal(a.Decision, &e) == nil {
			list = append(list, e)
		}
	}
	for _, name := range names {
		silent = append(silent, name)
	}
	slices.Sort(silent)
	return list, silent
}

// cutLast splits s at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
