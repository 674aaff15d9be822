package server

import (
	"errors"
	"testing"
)

func TestShareOption(t *testing.T) {
	for _, s := range []string{"", "auto", "mesh", "partitioned"} {
		if _, err := (&ClusterOptions{Share: s}).share(); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := (&ClusterOptions{Share: "all"}).share(); !errors.Is(err, errShare) {
		t.Errorf("all: %v", err)
	}
}
