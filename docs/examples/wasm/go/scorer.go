// Command session-scorer is a Grapevine plugin in Go: requests of a session prefer one endpoint, which
// all replicas compute without a table, and a busy endpoint passes its sessions on.
package main

import (
	"fmt"
	"strconv"
	"strings"
)

// facts are what the rule reads, in the order of the fields of request and endpoint.
var facts = []string{"request.session", "endpoint.name", "load.inflight"}

type request struct{ session text }

type endpoint struct {
	name     text
	inflight float64
}

// full is the number of requests in flight at which an endpoint has no points for its load.
var full = 64.0

// configure reads the parameter config: full=NUMBER, or nothing.
func configure(config string) error {
	if config == "" {
		return nil
	}
	value, ok := strings.CutPrefix(config, "full=")
	number, err := strconv.ParseFloat(value, 64)
	if !ok || err != nil || number <= 0 {
		return fmt.Errorf("want full=NUMBER, not %q", config)
	}
	full = number
	return nil
}

// score sets the score of each endpoint: half for the session, half for free capacity.
func score(r *request, endpoints []endpoint, scores []float64) {
	session := hash(r.session.String(), 14695981039346656037)
	best, most := -1, uint64(0)
	for k, e := range endpoints {
		scores[k] = max(1-e.inflight/full, 0) / 2
		if rank := hash(e.name.String(), session); best < 0 || rank > most {
			best, most = k, rank
		}
	}
	if r.session.size > 0 {
		scores[best] += .5
	}
}

// hash is FNV-1a with a mix at its end: equal in all replicas, unlike package maphash.
func hash(s string, h uint64) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}
