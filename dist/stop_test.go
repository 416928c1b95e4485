// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/testutil/service"
)

// stopTime is what an instance may take to undo and to keep what it has, behind the drain.
const stopTime = 15 * time.Second

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
	if err != nil || timeout <= stopTime {
		t.Fatalf("TimeoutStopSec is %v, %v", timeout, err)
	}
	takes := func(drain time.Duration) error {
		_, err := config.Parse(strings.NewReader(fmt.Sprintf("[announce]\ndrain_time = %q\n", drain)), "isthmus.toml")
		return err
	}
	if err := takes(timeout - stopTime); err != nil {
		t.Errorf("the key stops short of what the unit allows: %v", err)
	}
	if takes(timeout-stopTime+time.Millisecond) == nil {
		t.Errorf("drain_time may be longer than TimeoutStopSec=%v leaves, %v", timeout, timeout-stopTime)
	}
}
