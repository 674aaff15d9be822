package monotime

import "time"

var began = time.Now()

// Now returns the present by the clock that is never set. After the machine's clock was set it
// differs from time.Now by as much. It may be called concurrently.
func Now() time.Time { return since(began, time.Now()) }

// since returns the time at which as much has passed since began as had at now.
func since(began, now time.Time) time.Time { return began.Add(now.Sub(began)) }
