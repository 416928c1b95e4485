// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/fastpath/netattr"
)

// dumpAttempts is how often a list is asked for that changes while it is read.
const dumpAttempts = 5

// lenNfgenmsg is the length of the header of each netfilter message.
const lenNfgenmsg = 4

// dump asks the kernel's netfilter for a list and returns the messages, each
// beginning with its header. A kernel that has no such list returns none.
func dump(subsystem, message int, family uint8, attrs ...*nl.RtAttr) (msgs [][]byte, err error) {
	for range dumpAttempts {
		req := nl.NewNetlinkRequest(subsystem<<8|message, unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family})
		for _, a := range attrs {
			req.AddData(a)
		}
		msgs, err = req.Execute(unix.NETLINK_NETFILTER, 0)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errMissing
	}
	return msgs, err
}

// errMissing says that the kernel knows nothing of what was asked for.
var errMissing = errors.New("not in this kernel")

// number reads netfilter's integers, which are in network order; a short one is 0.
func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// text reads a string that ends in a zero octet.
func text(b []byte) string { return unix.ByteSliceToString(b) }

// deviceName names a device, or all whose names begin so.
type deviceName struct {
	name   string
	prefix bool
}

func (d deviceName) matches(name string) bool {
	return d.prefix && strings.HasPrefix(name, d.name) || d.name == name
}

// Attributes of nftables that package unix lacks.
const (
	nftaHookDevs          = 4
	nftaDeviceName        = 1
	nftaDevicePrefix      = 2
	nftaFlowtableTable    = 1
	nftaFlowtableName     = 2
	nftaFlowtableHook     = 3
	nftaFlowtableHookDevs = 3
)

// deviceNames reads a list of devices.
func deviceNames(b []byte) []deviceName {
	var names []deviceName
	for attr, value := range netattr.All(b) {
		switch attr {
		case nftaDeviceName, nftaDevicePrefix:
			names = append(names, deviceName{text(value), attr == nftaDevicePrefix})
		}
	}
	return names
}
