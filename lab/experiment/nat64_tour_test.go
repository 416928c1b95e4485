// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"strings"
	"testing"
)

// TestNAT64Tour takes the tour; each of its steps checks itself.
func TestNAT64Tour(t *testing.T) {
	t.Parallel()
	ctx, e := testEnvOf(t, nat64Tour)
	var out strings.Builder
	e.Out = &out
	if err := runNAT64Tour(ctx, e); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	mustSay(t, out.String(), "64:ff9b::/96", "64:ff9b::102:344", "1.2.3.68 answered after", "The gateway lists its sessions")
}
