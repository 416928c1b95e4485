// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "net/netip"

// UpdateRequest changes a context (TS 29.060 sections 7.3.3 and 7.3.3A, TS 09.60
// section 7.5.3). An SGSN says where the context is now; a GGSN, in version 1 alone,
// changes what the user has, and names no TEID and no addresses: the message does not
// say which of the two it is of, so [UpdateRequest.CheckFromSGSN] is for the GGSN.
// Version 0 has flow labels where fields are named TEID, and none of the fields that
// are marked.
type UpdateRequest struct {
	Recovery                    Optional[uint8]
	TEIDData, TEIDControl       Optional[uint32]
	AddressControl, AddressUser Optional[netip.Addr]
	QoS                         Optional[QoS]
	Private                     Optional[PrivateExtension]

	// Version 1.
	IMSI                                Optional[IMSI]
	RAI                                 Optional[RAI]
	NSAPI                               uint8
	TraceReference, TraceType           Optional[uint16]
	EndUserAddress                      Optional[EndUserAddress] // of a GGSN
	PCO                                 Optional[PCO]
	AlternativeControl, AlternativeUser Optional[netip.Addr]
	TFT                                 Optional[[]byte] // see ParseTFT
	TriggerID                           Optional[[]byte]
	OMCIdentity                         Optional[[]byte]
	CommonFlags                         Optional[CommonFlags]
	APNRestriction                      Optional[uint8] // of a GGSN
	RATType                             Optional[RATType]
	Location                            Optional[Location]
	TimeZone                            Optional[TimeZone]
	IMEI                                Optional[IMEI]
	AdditionalTrace                     Optional[[]byte]
	InfoChangeAction                    Optional[InfoChangeAction] // of a GGSN
	DirectTunnelFlags                   Optional[DirectTunnelFlags]
	BearerControlMode                   Optional[BearerControlMode] // of a GGSN
	EvolvedARP                          Optional[EvolvedARP]
	ExtendedFlags                       Optional[uint8]
	UserCSG                             Optional[[]byte]
	CSGReporting                        Optional[uint8] // of a GGSN
	AMBR                                Optional[AMBR]
	SignallingPriority                  Optional[uint8]
}

// Type returns [TypeUpdateRequest].
func (*UpdateRequest) Type() MessageType { return TypeUpdateRequest }

func (m *UpdateRequest) walk(w *walk) {
	if w.version == V0 {
		m.walkV0(w)
		return
	}
	element(w, ElementIMSI, conditional, &m.IMSI, imsi)
	element(w, ElementRAI, optional, &m.RAI, routeingArea)
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementTEIDData, conditional, &m.TEIDData, uint32s)
	element(w, ElementTEIDControl, conditional, &m.TEIDControl, uint32s)
	value(w, ElementNSAPI, &m.NSAPI, nsapi)
	element(w, ElementTraceReference, optional, &m.TraceReference, uint16s)
	element(w, ElementTraceType, optional, &m.TraceType, uint16s)
	element(w, ElementEndUserAddress, optional, &m.EndUserAddress, endUserAddress)
	element(w, ElementPCO, optional, &m.PCO, pco)
	element(w, ElementGSNAddress, conditional, &m.AddressControl, address)
	element(w, ElementGSNAddress, conditional, &m.AddressUser, address)
	element(w, ElementGSNAddress, optional, &m.AlternativeControl, address)
	element(w, ElementGSNAddress, optional, &m.AlternativeUser, address)
	qosElement, qos := qosFormat(V1)
	element(w, qosElement, conditional, &m.QoS, qos)
	m.walkLater(w)
}

// walkLater goes over the elements of release 99 and later.
func (m *UpdateRequest) walkLater(w *walk) {
	element(w, ElementTFT, optional, &m.TFT, octets)
	element(w, ElementTriggerID, optional, &m.TriggerID, octets)
	element(w, ElementOMCIdentity, optional, &m.OMCIdentity, octets)
	element(w, ElementCommonFlags, optional, &m.CommonFlags, commonFlags)
	element(w, ElementAPNRestriction, optional, &m.APNRestriction, octet)
	element(w, ElementRATType, optional, &m.RATType, rat)
	element(w, ElementLocation, optional, &m.Location, location)
	element(w, ElementTimeZone, optional, &m.TimeZone, timeZone)
	element(w, ElementIMEI, optional, &m.IMEI, imei)
	element(w, ElementAdditionalTrace, optional, &m.AdditionalTrace, octets)
	element(w, ElementInfoChangeAction, optional, &m.InfoChangeAction, infoChangeAction)
	element(w, ElementDirectTunnelFlags, optional, &m.DirectTunnelFlags, directTunnelFlags)
	element(w, ElementBearerControlMode, optional, &m.BearerControlMode, bearerControlMode)
	element(w, ElementEvolvedARP, optional, &m.EvolvedARP, evolvedARP)
	element(w, ElementExtendedFlags, optional, &m.ExtendedFlags, octet)
	element(w, ElementUserCSG, optional, &m.UserCSG, octets)
	element(w, ElementCSGReporting, optional, &m.CSGReporting, octet)
	element(w, ElementAMBR, optional, &m.AMBR, ambr)
	element(w, ElementSignallingPriority, optional, &m.SignallingPriority, octet)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

func (m *UpdateRequest) walkV0(w *walk) {
	if !w.writing {
		*m = UpdateRequest{}
	}
	qosElement, qos := qosFormat(V0)
	element(w, qosElement, mandatory, &m.QoS, qos)
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementTEIDData, mandatory, &m.TEIDData, tunnel(V0))
	element(w, ElementTEIDControl, mandatory, &m.TEIDControl, tunnel(V0))
	element(w, ElementGSNAddress, mandatory, &m.AddressControl, address)
	element(w, ElementGSNAddress, mandatory, &m.AddressUser, address)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// CheckFromSGSN refuses a request that lacks what one of an SGSN must have: the TEID of
// the user plane, both addresses and the profile.
func (m *UpdateRequest) CheckFromSGSN() error {
	switch {
	case !m.TEIDData.Present:
		return refuse(FaultElementMissing, ElementTEIDData)
	case !m.AddressControl.Present || !m.AddressUser.Present:
		return refuse(FaultElementMissing, ElementGSNAddress)
	case !m.QoS.Present:
		return refuse(FaultElementMissing, ElementQoS)
	}
	return nil
}

// UpdateResponse answers an [UpdateRequest] (TS 29.060 sections 7.3.4 and 7.3.4A, TS
// 09.60 section 7.5.4). Version 0 has flow labels where fields are named TEID, and none
// of the fields that are marked.
type UpdateResponse struct {
	Cause                       Cause
	Recovery                    Optional[uint8]
	TEIDData, TEIDControl       Optional[uint32]
	ChargingID                  Optional[uint32]
	AddressControl, AddressUser Optional[netip.Addr]
	QoS                         Optional[QoS]
	ChargingGateway             Optional[netip.Addr]
	Private                     Optional[PrivateExtension]

	// Version 1.
	PCO                                 Optional[PCO]
	AlternativeControl, AlternativeUser Optional[netip.Addr]
	TFT                                 Optional[[]byte] // of an SGSN; see ParseTFT
	AlternativeChargingGateway          Optional[netip.Addr]
	CommonFlags                         Optional[CommonFlags]
	APNRestriction                      Optional[uint8]
	Location                            Optional[Location] // of an SGSN
	TimeZone                            Optional[TimeZone] // of an SGSN
	InfoChangeAction                    Optional[InfoChangeAction]
	DirectTunnelFlags                   Optional[DirectTunnelFlags] // of an SGSN
	BearerControlMode                   Optional[BearerControlMode]
	EvolvedARP                          Optional[EvolvedARP]
	UserCSG                             Optional[[]byte] // of an SGSN
	CSGReporting                        Optional[uint8]
	AMBR                                Optional[AMBR]
}

// Type returns [TypeUpdateResponse].
func (*UpdateResponse) Type() MessageType { return TypeUpdateResponse }

func (m *UpdateResponse) walk(w *walk) {
	value(w, ElementCause, &m.Cause, cause)
	qosElement, qos := qosFormat(w.version)
	if w.version == V0 {
		if !w.writing {
			*m = UpdateResponse{Cause: m.Cause}
		}
		element(w, qosElement, conditional, &m.QoS, qos)
	}
	element(w, ElementRecovery, optional, &m.Recovery, octet)
	element(w, ElementTEIDData, conditional, &m.TEIDData, tunnel(w.version))
	element(w, ElementTEIDControl, conditional, &m.TEIDControl, tunnel(w.version))
	element(w, ElementChargingID, conditional, &m.ChargingID, uint32s)
	if w.version == V1 {
		element(w, ElementPCO, optional, &m.PCO, pco)
	}
	element(w, ElementGSNAddress, conditional, &m.AddressControl, address)
	element(w, ElementGSNAddress, conditional, &m.AddressUser, address)
	if w.version == V1 {
		element(w, ElementGSNAddress, optional, &m.AlternativeControl, address)
		element(w, ElementGSNAddress, optional, &m.AlternativeUser, address)
		element(w, qosElement, conditional, &m.QoS, qos)
		m.walkLater(w)
	}
	element(w, ElementChargingGateway, optional, &m.ChargingGateway, address)
	if w.version == V1 {
		element(w, ElementChargingGateway, optional, &m.AlternativeChargingGateway, address)
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// walkLater goes over the elements of release 99 and later.
func (m *UpdateResponse) walkLater(w *walk) {
	element(w, ElementTFT, optional, &m.TFT, octets)
	element(w, ElementCommonFlags, optional, &m.CommonFlags, commonFlags)
	element(w, ElementAPNRestriction, optional, &m.APNRestriction, octet)
	element(w, ElementLocation, optional, &m.Location, location)
	element(w, ElementTimeZone, optional, &m.TimeZone, timeZone)
	element(w, ElementInfoChangeAction, optional, &m.InfoChangeAction, infoChangeAction)
	element(w, ElementDirectTunnelFlags, optional, &m.DirectTunnelFlags, directTunnelFlags)
	element(w, ElementBearerControlMode, optional, &m.BearerControlMode, bearerControlMode)
	element(w, ElementEvolvedARP, optional, &m.EvolvedARP, evolvedARP)
	element(w, ElementUserCSG, optional, &m.UserCSG, octets)
	element(w, ElementCSGReporting, optional, &m.CSGReporting, octet)
	element(w, ElementAMBR, optional, &m.AMBR, ambr)
}
