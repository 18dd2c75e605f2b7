"""DeiT's hard distillation: what turns a classifier into one that also learns from a teacher."""

distilled = dict(
    type='DistilledClassifier',
    teacher='regnety_160.deit_in1k',  # a name in timm or mmpretrain, or a config of mmpretrain's
    teacher_weights=None,  # a file; None: those of the timm model
    head=dict(type='DistilledClsHead'),
)
