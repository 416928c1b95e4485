// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// CollectPort reports what a port, called name, could not receive or send.
func CollectPort(emit func(role.Metric), name string, s port.Stats) {
	emit(role.Dropped(name+"_receive_truncated", s.ReadTruncated))
	emit(role.Dropped(name+"_receive_malformed", s.ReadMalformed))
	emit(role.Dropped(name+"_receive_empty", s.ReadEmpty))
	emit(role.Dropped(name+"_receive_full", s.ReadFull))
	emit(role.Dropped(name+"_send_full", s.WriteFull))
	emit(role.Dropped(name+"_send_denied", s.WriteDenied))
	emit(role.Dropped(name+"_send_too_big", s.WriteTooBig))
	emit(role.Dropped(name+"_send_unreachable", s.WriteUnreachable))
	emit(role.Dropped(name+"_send_failed", s.WriteFailed))
}
