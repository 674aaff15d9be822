package extproc

import (
	"testing"
	"time"
)

func TestServed(t *testing.T) {
	p := Processor{}
	p.served.Add(nil, "10.0.0.1:80", time.Unix(1000, 0))
	if got := p.Served(); got != (ServedStatus{Unknown: 1}) {
		t.Errorf("status %+v", got)
	}
}
