package replay

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

// placed counts requests by engine that arrived from one time to another.
func placed(c *Case, r *Result, engine int, from, to time.Duration) (n int) {
	for i := range r.Outcomes {
		if at := c.Trace.Requests[i].At; at >= from && at < to && r.Outcomes[i].Endpoint == engine {
			n++
		}
	}
	return n
}

func changing(t *testing.T, replicas int, changes ...string) (*Case, *Result) {
	t.Helper()
	c := Case{Trace: small(t, "chat", 4, 3), Policy: policy(t, Default), Endpoints: 4, Replicas: replicas, Share: 50 * time.Millisecond, Seed: 1}
	for _, s := range changes {
		one, err := ParseChange(s)
		if err != nil {
			t.Fatal(err)
		}
		c.Changes = append(c.Changes, one)
	}
	return &c, run(t, c)
}

// TestFailing: a failing engine aborts its running requests and gets no new ones until it recovers,
// with an empty cache.
func TestFailing(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		c, r := changing(t, replicas, "2m:1:join", "1m:1:fail")
		if r.Errors == 0 || r.Errors > 40 || r.Reasons[errFailed] != r.Errors {
			t.Errorf("%d errors: %v", r.Errors, r.Reasons)
		}
		for i := range r.Outcomes {
			if o := &r.Outcomes[i]; o.Error != "" && (o.Endpoint != 1 || c.Trace.Requests[i].At > time.Minute) {
				t.Errorf("request %d: %+v", i, o)
			}
		}
		if n := placed(c, r, 1, time.Minute, 2*time.Minute); n > 0 {
			t.Errorf("%d requests went to an engine that was gone", n)
		}
		if n := placed(c, r, 1, 2*time.Minute, 4*time.Minute); n < 20 {
			t.Errorf("%d requests went to it when it was back", n)
		}
		for i := range r.Outcomes {
			if o := &r.Outcomes[i]; o.Endpoint == 1 && c.Trace.Requests[i].At >= 2*time.Minute {
				if o.Cached > 0 {
					t.Errorf("its first request found %d tokens", o.Cached)
				}
				break
			}
		}
		_, again := changing(t, replicas, "2m:1:join", "1m:1:fail")
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Error("equal cases had different results")
		}
	}
}

// TestHanging: a hanging engine keeps its running requests and resumes them later. It gets few new
// requests until then, and its cache index stays.
func TestHanging(t *testing.T) {
	c, r := changing(t, 1, "1m:2:hang=40s")
	if r.Errors > 0 {
		t.Errorf("errors: %v", r.Reasons)
	}
	if n := placed(c, r, 2, 65*time.Second, 100*time.Second); n > 5 {
		t.Errorf("%d requests went to an engine that hung", n)
	}
	late := 0
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.End > time.Minute && o.End < 100*time.Second && o.Endpoint == 2 {
			t.Fatalf("request %d ended while its engine hung: %+v", i, o)
		}
		if o.Endpoint == 2 && c.Trace.Requests[i].At < time.Minute && o.End > 100*time.Second {
			late++
		}
	}
	if late == 0 {
		t.Error("nothing waited")
	}
}

// TestComing: engines get requests while they are listed, and finish their running requests after
// they leave the list.
func TestComing(t *testing.T) {
	c, r := changing(t, 3, "1m:3:join", "2m:0:leave", "30s:1:slow=8")
	if r.Errors > 0 {
		t.Errorf("errors: %v", r.Reasons)
	}
	if n := placed(c, r, 3, 0, time.Minute); n > 0 {
		t.Errorf("%d requests went to an engine before it was there", n)
	}
	if n := placed(c, r, 3, time.Minute, 4*time.Minute); n < 100 {
		t.Errorf("%d requests went to an engine that joined", n)
	}
	if n := placed(c, r, 0, 2*time.Minute, 4*time.Minute); n > 0 {
		t.Errorf("%d requests went to an engine that had left", n)
	}
	if slow, other := placed(c, r, 1, time.Minute, 4*time.Minute), placed(c, r, 2, time.Minute, 4*time.Minute); slow*3 > other {
		t.Errorf("%d requests went to an engine of an eighth of the speed, %d to another", slow, other)
	}
}

func TestChangesRefused(t *testing.T) {
	for _, s := range []string{"", "1m:1", "1m:x:fail", "-1m:1:fail", "1m:-1:fail", "1m:1:explode", "1m:1:slow", "1m:1:slow=0", "1m:1:hang=", "1m:1:hang=-1s", "1m:1:fail=2", "1m:1:fail:2"} {
		if c, err := ParseChange(s); !errors.Is(err, ErrCase) {
			t.Errorf("%q: %+v, %v", s, c, err)
		}
	}
	for _, c := range []Case{
		{Endpoints: 2, Changes: []Change{{Engine: 2, What: Fail}}},
		{Endpoints: 2, Changes: []Change{{What: Slow}}},
		{Endpoints: 2, Roles: []string{RolePrefill, RoleDecode}, Changes: []Change{{What: Fail}}},
	} {
		c.Trace, c.Policy = small(t, "chat", 1, 1), policy(t, Default)
		if _, err := c.check(); !errors.Is(err, ErrCase) {
			t.Errorf("%+v: %v", c.Changes, err)
		}
	}
}
