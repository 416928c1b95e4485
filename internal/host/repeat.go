// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"

	"github.com/isthmus-net/isthmus/internal/retry"
)

// Repeat calls do at each interval until ctx is done. Of its errors failed gets each kind
// once, and again when do has worked meanwhile.
func Repeat(ctx context.Context, interval time.Duration, do func() error, failed func(error)) {
	again := time.NewTicker(interval)
	defer again.Stop()
	var trouble retry.Trouble
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if err := do(); err == nil {
				trouble.Works(time.Now())
			} else if trouble.Failed(err.Error(), time.Now()) {
				failed(err)
			}
		}
	}
}
