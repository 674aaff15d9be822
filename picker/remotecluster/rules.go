package remotecluster

import "strings"

// Rules determine the clusters in which requests may be served. An entry is a cluster's name,
// region:NAME for all clusters of a region, or * for all. Without entries, all clusters are
// allowed.
type Rules struct {
	Default    []string            // for requests whose objective has no entry
	Objectives map[string][]string // by objective
}

// maxListed is the maximum number of entries read from a header.
const maxListed = 64

// place is a cluster's name and region.
type place struct{ name, region string }

// allow reports whether a request with an objective, and with a possibly empty header that lists
// clusters, may be served at a place. A header can only narrow the rules.
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

// listed reports whether a comma-separated list contains the place.
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
