package health

import (
	"slices"
	"time"
)

// group are endpoints that can stand in for each other.
//
// Soft evidence against one of them leaves it out because the others are better. Where
// more than a share of the group is no better, it is ignored: for those that are away
// the others are compared by what became of their last requests, since evidence that all
// share hardly moves their scores (a request that fails is weighed against what the
// others show), and the first that failed would stay out alone.
type group struct {
	name    string
	members []*member

	// typical is, by severity, the share of requests that end badly, or worse, at more
	// than Threshold of the members.
	typical  [severities]float64
	suspects bool      // so many are suspect that those are used
	calm     time.Time // since when there has been less reason for either
}

// calmFor is how long there must be less reason to ignore evidence.
const calmFor = 2 * time.Second

// compare decides whose evidence is ignored. Suspects are pardoned first: one too many
// must not bring back those that are out.
func (g *group) compare(now time.Time, threshold float64) {
	limit := threshold * float64(len(g.members))
	away, suspects := 0, 0
	for _, k := range g.members {
		switch {
		case k.m.away():
			away++
		case k.m.state == Suspect:
			suspects++
		}
	}
	want := group{suspects: suspects > 0 && float64(away+suspects) > limit}
	less := g.suspects && !want.suspects
	shares := make([]float64, len(g.members))
	for severity := range severities {
		for i, k := range g.members {
			shares[i] = k.fails(severity)
		}
		slices.Sort(shares)
		want.typical[severity] = shares[len(shares)-1-min(int(limit), len(shares)-1)]
		less = less || want.typical[severity] < g.typical[severity]
	}
	switch {
	case !less:
		g.calm = time.Time{}
	case g.calm.IsZero():
		g.calm = now
	}
	if less && now.Sub(g.calm) < calmFor {
		want.suspects = want.suspects || g.suspects
		for severity := range severities {
			want.typical[severity] = max(want.typical[severity], g.typical[severity])
		}
	} else {
		g.calm = time.Time{}
	}
	g.typical, g.suspects = want.typical, want.suspects
}

// fails returns the share of the endpoint's requests that end badly for causes of some
// severity, or worse: of the last ones, and of those for which it is away.
func (k *member) fails(severity int) float64 {
	share := k.recent.fails(severity)
	switch {
	case !k.m.away() || k.m.cause.severity() < severity:
		return share
	case k.m.failed == 0: // it was not for some of its requests
		return 1
	}
	return max(share, k.m.failed, sickShare)
}

// pardons reports whether an endpoint is used although its state is bad.
func (g *group) pardons(k *member) bool {
	severity := k.m.cause.severity()
	switch {
	case k.m.state == Healthy || k.m.cause.Certain():
		return false
	case k.m.state == Suspect && g.suspects:
		return true
	}
	return g.typical[severity] >= max(sickShare, k.fails(severity)/alike)
}

// alike is how many times as many of its requests as the others an endpoint may fail and
// be no worse: the shares are of few.
const alike = 2

// GroupProblem is what is wrong with a group as a whole. It is a plain value.
type GroupProblem struct {
	Group     string
	Endpoints int
	Unhealthy int     // left out, or would be
	Ignored   int     // used although soft evidence speaks against them, since most are no better
	Example   int     // id of one that is away, where some are
	Failing   float64 // share of the last requests that had no answer, where most endpoints fail them; else 0
}

// trouble returns what is wrong with the group, nothing unless most of it suffers.
func (g *group) trouble(threshold float64) GroupProblem {
	t := GroupProblem{Group: g.name, Endpoints: len(g.members)}
	var used tally
	for _, k := range g.members {
		if k.m.away() {
			if t.Unhealthy++; t.Unhealthy == 1 {
				t.Example = k.id
			}
		}
		if k.view.Overruled {
			t.Ignored++
		}
		if k.view.Share > 0 {
			used.merge(&k.recent)
		}
	}
	if share := used.fails(nothing); min(share, g.typical[nothing]) >= sickShare {
		t.Failing = share
	}
	if t.Ignored == 0 && t.Failing == 0 && float64(t.Unhealthy) <= threshold*float64(t.Endpoints) {
		return GroupProblem{}
	}
	return t
}
