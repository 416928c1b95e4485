// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent

import "context"

// Stall has the agent do nothing else while f runs.
func (a *Agent) Stall(ctx context.Context, f func()) error {
	return a.do(ctx, func() error { f(); return nil })
}
