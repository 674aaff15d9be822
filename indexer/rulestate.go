package indexer

import (
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/indexer/internal/lockfree"
)

// ruleState tracks the groups with rules of one runner's source. Between two changes of the holder set,
// a group has either every block or none. So the furthest position at which a rule is satisfied is
// the last one before a change.
type ruleState struct {
	rules []condition
	from  [block.MaxRules]int32 // where the consecutive blocks ending at to begin
	to    [block.MaxRules]int32 // end of the group's last known block
	held  uint32                // groups that hold the blocks since the last change, as bits
	since int32                 // tokens walked at the last change
	best  block.Run             // run up to the furthest position where all rules hold

	tokens  [block.NumTiers]int32 // walked, up to counted
	counted int32
}

// count counts the tokens up to a position in a tier.
func (g *ruleState) count(to int32, t block.Tier) {
	g.tokens[t] += to - g.counted
	g.counted = to
}

// follow starts tracking the rules of a new runner. It returns the index of its state + 1.
func (l *lane) follow(rules []condition) int32 {
	n := len(l.rules)
	if n < cap(l.rules) {
		l.rules = l.rules[:n+1]
	} else {
		l.rules = append(l.rules, ruleState{})
	}
	g := &l.rules[n]
	g.rules, g.held, g.since, g.best = rules, 0, 0, block.Run{}
	g.tokens, g.counted = [block.NumTiers]int32{}, 0
	for i := range rules {
		g.from[i], g.to[i] = 0, 0
	}
	return int32(n) + 1
}

// noteHolders records which groups hold the next block, and those after it up to the next change of the
// holder set.
func (l *lane) noteHolders(s *lockfree.Set, tokens int32) {
	for i := range l.alive {
		if l.alive[i].rules == 0 {
			continue
		}
		g := &l.rules[l.alive[i].rules-1]
		was := g.held
		g.held, g.since = 0, l.at.tokens
		for k := range g.rules {
			if !s.Has(g.rules[k].slot) {
				continue
			}
			g.held |= 1 << k
			if was&(1<<k) != 0 {
				continue
			}
			// A group with larger blocks is visible where its blocks end.
			size := max(int32(g.rules[k].Size), tokens)
			if end := l.at.tokens + tokens; end-g.to[k] > size {
				g.from[k] = max(0, end-size)
			}
		}
	}
}

// settle moves runners to at, the last position before a change of the holder set, if their groups'
// rules hold there.
func (l *lane) settle(at progress) {
	for i := range l.alive {
		if r := &l.alive[i]; r.rules != 0 {
			l.rules[r.rules-1].settle(r, at)
		}
	}
}

func (g *ruleState) settle(r *runner, at progress) {
	if at.tokens <= g.since {
		return // already settled
	}
	holds := true
	for k := range g.rules {
		held := g.held&(1<<k) != 0
		if held {
			g.to[k] = at.tokens
		}
		switch c := &g.rules[k]; c.Kind {
		case block.RuleAll:
			held = held && g.from[k] == 0
		case block.RuleWindow:
			held = held && (g.from[k] == 0 || at.tokens-g.from[k] >= int32(c.Need))
		case block.RuleNever:
			held = false
		}
		holds = holds && held
	}
	if !holds {
		return
	}
	g.best = block.Run{Blocks: at.blocks, Bytes: at.bytes, Tokens: g.tokens, Cut: at.cut, Ruled: true}
	g.best.Tokens[r.tier] += at.tokens - g.counted
}

// toEnd settles runners with rules at the end of the lane. An engine always computes part of a
// prompt: it continues from the last position before its end.
func (l *lane) toEnd(q block.Query) {
	if len(l.rules) == 0 {
		return
	}
	at := l.at
	if int(at.bytes) == len(q.Bytes) && at.blocks > 0 {
		at.blocks--
		at.tokens -= int32(l.last.tokens())
		at.bytes -= int32(l.last.length.Load())
	}
	l.settle(at)
}
