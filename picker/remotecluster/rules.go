package remotecluster

import "strings"

// Rules say in which clusters requests may be served. An entry is the name of a cluster,
// region:NAME for all clusters of a region, or * for all. No entries allow all clusters.
type Rules struct {
	Default    []string            // of requests without an objective that has its own
	Objectives map[string][]string // by objective
}

// maxListed bounds the entries of a header that are read.
const maxListed = 64

// place is a cluster as rules see it.
type place struct{ name, region string }

// allow reports whether a request with an objective, and with a header that lists
// clusters or is empty, may be served at a place. A header narrows the rules and never
// widens them.
func (r *Rules) allow(objective, header string, at place) bool {
	list, own := r.Objectives[objective]
	if !own {
		list = r.Default
	}
	if len(list) > 0 {
		found := false
		for _, entry := range list {
			if found = found || at.matches(entry); found {
				break
			}
		}
		if !found {
			return false
		}
	}
	return header == "" || at.listed(header)
}

func (p place) matches(entry string) bool {
	if region, ok := strings.CutPrefix(entry, "region:"); ok {
		return region != "" && region == p.region
	}
	return entry == "*" || entry == p.name
}

// listed reports whether a comma list names the place.
func (p place) listed(header string) bool {
	for range maxListed {
		entry, rest, more := strings.Cut(header, ",")
		if p.matches(strings.TrimSpace(entry)) {
			return true
		}
		if !more {
			return false
		}
		header = rest
	}
	return false
}
