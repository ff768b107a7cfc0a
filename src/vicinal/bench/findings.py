"""What the tables of ``benchmarks/results`` say, by name: a sentence or two for each, written by somebody who looked.

A table that was run again is to be looked at again.
"""

FINDINGS = {
    "headline-cub": (
        "Three seeds, so nothing here is a claim yet. Multi-similarity, DANML and LoOp over it share the first place; "
        "no method is told from its plain twin but HTL, which is below it."
    ),
    "hdml-cub": (
        "HDML equals its twins, triplets within 0.3, N-pair within 0.9 (R@1); semi-hard triplets of the same images "
        "are half a point above both. The paper's margins (+7.7, +1.8) come from starts 24 and 8 points lower."
    ),
    "ala-cub": "ALA equals its twins over triplets and margin loss; the controls have one seed or none.",
    "anml-cub": (
        "At one rate for all, the improved lifted and Proxy-NCA losses are far above their originals, as in the paper; "
        "on features most of that was the originals' rate. Improved N-pair is below its own, as a temperature alone "
        "is; DANML, its parts and multi-similarity are not told apart."
    ),
    "survey-cub": (
        "HTL's margins cost 1.5 to 1.8 points, its classes nothing. LoOp raises MAP@R by 0.7 over triplets and "
        "multi-similarity and lowers everything over HPHN and lifted; HER's weights change nothing. Most rows: 2 seeds."
    ),
    "combinations-cub": (
        "No combination is above the best single method. HDML undoes what HTL's margins cost (+1.5); elsewhere it "
        "changes nothing. DANML + LoOp and multi-similarity + LoOp have the highest MAP@R, 22.9 and 23.0."
    ),
    "headline-cub_features": (
        "All trained rows lie above the features, margin loss by 0.2, the others by 1 to 2 points; no method is told "
        "from its twin, with intervals that leave room for 0.3 to 1.5 points."
    ),
    "hdml-cub_features": (
        "HDML equals its twins within 0.2 to 0.6 (R@1), with regenerated and with real members, and longer training of "
        "the twin is worth nothing either: over these features there is little left to learn from harder negatives."
    ),
    "hdml_ablations-cub_features": (
        "The curve of λ is flat; without J_recon HDML is worst, the rest is not told apart. The paper's maximum "
        "(its Figures 6 and 7) is not seen."
    ),
    "hdml-omniglot": (
        "From scratch, HDML with real members is above random triplets in all three seeds (+2.3, +4.0, +4.3); as "
        "published it is not, and over N-pair loss it is below. Semi-hard triplets are above all. The row at HDML's "
        "cost has half as many steps more, where HDML took a tenth more time."
    ),
    "real_members-omniglot": (
        "The gain follows the hardness: none where nothing is drawn, +2.5 at λ = 0.4, +3.5 to +3.8 from λ = 0.15 down. "
        "The paper's fall at λ = 0 is not seen."
    ),
    "ala-cub_features": (
        "ALA equals its twins and a constant weight; margin loss leans its way (+0.6, over test classes +0.3 to +0.8). "
        "Training recall is that of the twins: there is no over-fitting to repair."
    ),
    "anml-cub_features": (
        "At the table's rate the improved lifted (+7.8) and Proxy-NCA losses (+3.6) are above their originals after "
        "Holm's correction; at the rate that held-out classes choose for the originals +2.5 and nothing are left. "
        "Improved N-pair equals N-pair, DANML multi-similarity; of its parts mining counts (0.4)."
    ),
    "survey-cub_features": (
        "LoOp raises HPHN by 0.7 after Holm's correction (by 1.5 at the other rate), and no other loss; Embedding "
        "Expansion's 0.7 is not sure after it; HTL's margins cost about a point, its classes nothing; HER's weights "
        "change nothing."
    ),
    "combinations-cub_features": (
        "Two methods together equal each alone: no difference is told from 0 but that of DANML + LoOp (-0.4)."
    ),
}
