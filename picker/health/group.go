package health

import (
	"slices"
	"time"
)

// group is a set of endpoints that can replace each other.
//
// Soft evidence excludes an endpoint because the others are better. It is ignored when more than a
// threshold share of the group is no better. Endpoints that are out are compared with the others by
// their most recent request results. Scores cannot be used: a fault that all endpoints share hardly
// changes them, so that only the first endpoint to fail would stay out.
type group struct {
	name    string
	members []*member

	// typical is, for each severity, the failure share that more than Threshold of the members
	// reach.
	typical  [severities]float64
	suspects bool      // too many members are suspect, so suspects are used
	calm     time.Time // since when fewer members justify this
}

// calmFor is how long fewer members must fail before evidence counts again.
const calmFor = 2 * time.Second

// compare decides for which endpoints evidence is ignored. Suspects are reinstated before endpoints
// that are out, so that one suspect too many does not reinstate those.
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
	shares := make([]float64, 0, len(g.members))
	for severity := range severities {
		shares = shares[:0]
		for _, k := range g.members {
			if share := k.fails(severity); share > 0 {
				shares = append(shares, share)
			}
		}
		if above := min(int(limit), len(g.members)-1); above < len(shares) {
			slices.Sort(shares)
			want.typical[severity] = shares[len(shares)-1-above]
		}
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

// fails returns the endpoint's failure share for a severity or a higher one, over its most recent
// requests and, if it is out, the requests that put it out.
func (k *member) fails(severity int) float64 {
	share := k.recent.fails(severity)
	switch {
	case !k.m.away() || k.m.cause.severity() < severity:
		return share
	case k.m.failed == 0: // it was not put out by failed requests
		return 1
	}
	return max(share, k.m.failed, unhealthyShare)
}

// pardons reports whether an endpoint is used despite its state.
func (g *group) pardons(k *member) bool {
	severity := k.m.cause.severity()
	switch {
	case k.m.state == Healthy || k.m.cause.Certain():
		return false
	case k.m.state == Suspect && g.suspects:
		return true
	}
	return g.typical[severity] >= max(unhealthyShare, k.fails(severity)/alike)
}

// alike is the factor by which an endpoint's failure share may exceed the others' and still count
// as no worse. It allows for small samples.
const alike = 2

// GroupProblem describes a fault of a group as a whole. It is a plain value.
type GroupProblem struct {
	Group     string
	Endpoints int
	Unhealthy int     // endpoints that are out, or would be
	Ignored   int     // used despite soft evidence, because most endpoints are no better
	Example   int     // id of one unhealthy endpoint, if any
	Failing   float64 // share of recent requests without an answer, if most endpoints fail; otherwise 0
}

// problem returns the group's problem, or the zero value if most endpoints are healthy.
func (g *group) problem(threshold float64) GroupProblem {
	t := GroupProblem{Group: g.name, Endpoints: len(g.members)}
	var used decayed
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
	if share := used.fails(nothing); min(share, g.typical[nothing]) >= unhealthyShare {
		t.Failing = share
	}
	if t.Ignored == 0 && t.Failing == 0 && float64(t.Unhealthy) <= threshold*float64(t.Endpoints) {
		return GroupProblem{}
	}
	return t
}
