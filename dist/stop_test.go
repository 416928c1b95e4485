// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/daemon"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// TestStopOutlastsTheDrain: systemd kills no service that still drains, however long a drain_time
// the configuration may name, or what instances keep for a successor would be lost.
func TestStopOutlastsTheDrain(t *testing.T) {
	unit, err := service.Read("systemd/isthmus.service")
	if err != nil {
		t.Fatal(err)
	}
	var timeout time.Duration
	for _, d := range unit {
		if d.Key == "TimeoutStopSec" {
			timeout, err = time.ParseDuration(d.Value + "s")
		}
	}
	if err != nil || timeout <= daemon.UndoTime {
		t.Fatalf("TimeoutStopSec is %v, %v", timeout, err)
	}
	takes := func(drain time.Duration) error {
		_, err := config.Parse(strings.NewReader(fmt.Sprintf("[announce]\ndrain_time = %q\n", drain)), "isthmus.toml")
		return err
	}
	if err := takes(timeout - daemon.UndoTime); err != nil {
		t.Errorf("the key stops short of what the unit allows: %v", err)
	}
	if takes(timeout-daemon.UndoTime+time.Millisecond) == nil {
		t.Errorf("drain_time may be longer than TimeoutStopSec=%v leaves, %v", timeout, timeout-daemon.UndoTime)
	}
}
