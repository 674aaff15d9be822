package endpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/grapevine-epp/grapevine/internal/testkit/fields"
)

// TestRecordsOfPairs: the record of a pair has all that was learned of it.
func TestRecordsOfPairs(t *testing.T) {
	eps := newPool(2).Snapshot().Endpoints
	var s Splits
	s.Learn(eps[1], eps[0], SplitOutcome{Fault: PairWorks, Gained: .5, Compared: true, Whole: 2})
	for range splitFails {
		s.Learn(eps[1], eps[0], SplitOutcome{Fault: PairLate, Gained: -.1})
	}
	list := s.Records()
	if len(list) != 1 {
		t.Fatalf("%d records, want 1", len(list))
	}
	got := list[0]
	for _, name := range fields.Unset(got, "To") { // the first endpoint is number 0
		t.Errorf("%s is not set", name)
	}
	want := SplitRecord{From: eps[1].ID, To: eps[0].ID, Worked: 1, Failed: splitFails, Fault: PairLate, Last: PairLate, Gained: .5 - .1*splitFails, Compared: 1}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.IgnoreFields(got, "Success", "Gain")); diff != "" {
		t.Errorf("Records() (-want +got):\n%s", diff)
	}
	if got.Success >= 1 || got.Gain <= 0 {
		t.Errorf("success %v, gain %v, want less than 1 and more than 0", got.Success, got.Gain)
	}
}
