"""What the tables of ``results`` show, by name: a sentence or two for each. A table that is run again is read again.

Gains are in points of Recall@1; *significant* is a 95 % interval over seeds that excludes 0, after Holm's correction
where that is said.
"""

FINDINGS = {
    "headline-cub": (
        "Multi-similarity, DANML and LoOp over it share the first place; LoOp raises MAP@R by 0.7. In Recall@1 no "
        "method differs significantly from its baseline but HTL, which is below it."
    ),
    "pooled-cub": (
        "The generalized mean (p = 3) is worth 1.1 points of Recall@1 and of MAP@R to multi-similarity loss, and 2.1 "
        "to the untrained features: more than any method. Methods over it equal it; LoOp has 0.3 more of MAP@R."
    ),
    "headline-cub_lite2": (
        "The larger network is no better here (62.5 against 62.8), perhaps because images are cropped to 224 and it "
        "was trained with 260; what methods add to their baselines is the same."
    ),
    "hdml-cub": (
        "HDML equals its baselines, triplets within 0.5, N-pair within 0.3 (R@1), and is not worth its cost: N-pair "
        "gains 0.5 from the same time, after Holm's correction. The paper's margins (+7.7, +1.8) come from baselines "
        "24 and 8 points lower."
    ),
    "hdml_ablations-cub": (
        "Without J_recon 4 points are lost; without the label term 0.4 is gained, not significantly; the generator and "
        "λ change nothing that 5 seeds can show. The paper's maximum over λ (its Figures 6 and 7) does not appear."
    ),
    "paper_regime-cub": (
        "After 225 to 240 steps at the papers' rates a random head has not caught up with the untrained features, but "
        "for N-pair, over which HDML trends up as in the paper (+1.0, printed +1.8; its authors' setting in "
        "full: experiments/learning_curves.md). None of the other margins appears: HDML takes 11 points "
        "from triplets (printed +7.7), ALA 1 to 4 from its baselines (printed +10 to +12), because its weights, which "
        "act as they are here, rise together and separate no tuple from another (experiments/ala.md)."
    ),
    "ala-cub": (
        "ALA equals its baselines, a constant weight, random weights and an assessor without memory, over disjoint and "
        "over random episodes: no weighting differs significantly from its baseline. In training it equals them, too "
        "(Table 2 of the paper: 74.4 and 74.3 Recall@1), so there is no over-fitting that it repairs."
    ),
    "anml-cub": (
        "At one rate for all, the improved lifted and Proxy-NCA losses are far above their originals, as in the "
        "paper; on features part of that was the originals' rate. Improved N-pair is below its original, as a "
        "temperature alone is; DANML, its parts and multi-similarity do not differ significantly, nor when both are "
        "tuned over rate, steps, α, β and λ (63.1 and 63.2, anml-cub-tuned)."
    ),
    "survey-cub": (
        "HTL's margins cost 1.7 to 1.9 points; its classes alone give 0.4, and LoOp over triplets 1.1, both after "
        "Holm's correction. LoOp raises MAP@R by 0.7 over triplets and multi-similarity and costs HPHN and lifted 1 "
        "to 2 points; Embedding Expansion costs HPHN as much. HER's weights change nothing significantly."
    ),
    "her-cub": "HER's weights change nothing: the soft margin does their work already (survey.md).",
    "her-omniglot_pairs": (
        "No part helps here: weights cost 1.3 points, FCAM 3.6 on average, and orientation regression 11.4, because "
        "embeddings must then keep the angle that matching has to forget; weights make that cheaper. A classifier "
        "fits the training characters far better and finds unseen ones as often (experiments/her.md)."
    ),
    "combinations-cub": "The same rows as the table whose best is chosen on held-out classes.",
    "headline-glyphs": (
        "HTL is significantly above its baseline (+2.4), the only method that is by 5 seeds; LoOp trends up (+0.5), "
        "not significantly. HDML and ALA are significantly below theirs, perhaps because training is short here and "
        "both learn more slowly."
    ),
    "hdml-glyphs": (
        "From scratch and in 5 epochs HDML as published is below its baselines; with real members it is above random "
        "triplets after Holm's correction (+3.1) and level with N-pair. The baseline gains 8 to 9 points from HDML's "
        "time."
    ),
    "ala-glyphs": (
        "Every weighting is below its baseline, a constant one and random ones too (-1.2 to -3.9); the baseline gains "
        "9.5 points from ALA's time. Training is far from its end here, and what slows it costs."
    ),
    "anml-glyphs": (
        "The improved lifted loss has the highest score of all rows (+20.1 over its original, which suffers from "
        "the shared rate); improved Proxy-NCA and N-pair are below theirs. DANML, its parts and multi-similarity "
        "are level."
    ),
    "survey-glyphs": (
        "Each half of HTL helps by itself (classes +2.5, margins +2.0, both after Holm's correction), and both "
        "together (+2.4) no more than one. LoOp trends up over multi-similarity alone; HER's weights cost 1.5."
    ),
    "combinations-glyphs": (
        "LoOp over DANML trends up (+0.9), not significantly; HDML costs every loss it is put on, most where all "
        "triplets of the batch were learned from already (-11.0)."
    ),
    "headline-omniglot": (
        "LoOp over multi-similarity has the best score and MAP@R (+1.1, +2.0 over its baseline), not significant with "
        "3 seeds; HDML over N-pair is below its baseline, HTL and ALA level with theirs."
    ),
    "combinations-omniglot": (
        "LoOp over DANML gains 1.7 (MAP@R 1.9), not significant after Holm's correction; HDML costs "
        "every loss that sees all tuples of its batch 2 to 5 points."
    ),
    "when_does_hardness_help": (
        "Soft weighting of mined pairs helps nearly everywhere: multi-similarity and DANML gain 3 to 8 points, both "
        "significantly where classes are inseparable, until 40 % of the labels are wrong. The hardest triplets alone "
        "collapse; semi-hard mining and LoOp lose more the more labels are wrong and the more clusters there are; HDML "
        "and ALA gain nowhere."
    ),
    "headline-cub_features": (
        "All trained rows lie above the features, margin loss by 0.2, the others by 1 to 2 points; no method differs "
        "significantly from its baseline, with intervals that leave room for 0.3 to 1.5 points."
    ),
    "hdml-cub_features": (
        "HDML equals its baselines within 0.2 to 0.7 (R@1), with regenerated and with real members, and longer "
        "training of the baseline is worth nothing either: over these features there is little left to learn from "
        "harder negatives."
    ),
    "hdml_ablations-cub_features": (
        "The curve of λ is flat; without J_recon HDML is worst, the rest does not differ significantly. The paper's "
        "maximum (its Figures 6 and 7) does not appear."
    ),
    "hdml-omniglot": (
        "From scratch, HDML with real members is above random triplets in all three seeds (+2.3, +4.0, +4.3); as "
        "published it is not, and over N-pair loss it is below. Half as many steps more are worth as much (+4.1, "
        "+5.5; HDML took a tenth more time), and contrastive, semi-hard and batch-all loss are 16 points above."
    ),
    "real_members-omniglot": (
        "The gain follows the hardness: none where negatives stay as they are, +2.5 at λ = 0.4, +3.5 to +3.8 from "
        "λ = 0.15 down. The paper's fall at λ = 0 does not appear."
    ),
    "ala-cub_features": (
        "ALA equals its baselines and a constant weight; over margin loss it trends up (+0.6, over test classes +0.3 "
        "to +0.8). Training recall is that of the baselines: there is no over-fitting to repair."
    ),
    "anml-cub_features": (
        "At the table's rate the improved lifted (+7.8) and Proxy-NCA losses (+3.6) are above their originals after "
        "Holm's correction; at the rate that held-out classes choose for the originals +2.5 and nothing are left. "
        "Improved N-pair equals N-pair, DANML multi-similarity; of its parts mining counts (0.4)."
    ),
    "survey-cub_features": (
        "LoOp raises HPHN by 0.7 after Holm's correction (by 1.5 at the other rate), and no other loss; Embedding "
        "Expansion's 0.7 is not significant after it; HTL's margins cost about a point, and more where an epoch after "
        "the first was chosen, since they do not act in the first (survey.md); its classes and HER's weights do "
        "nothing."
    ),
    "combinations-cub_features": (
        "Two methods together equal each alone: no difference is significant after Holm's correction; DANML + LoOp "
        "trends down (-0.4)."
    ),
    "combinations-cub-tuned": (
        "On held-out classes DANML + LoOp is the best combination; with multi-similarity + LoOp it has the highest "
        "Recall@1 and MAP@R (23.0) of this table, though not significantly above DANML (+0.2) or multi-similarity; the "
        "best of the others by held-out classes is 1.5 below it on the test classes. HDML over HTL's margins gains 1.3 "
        "after Holm's correction, which is most of what they cost; elsewhere it changes nothing."
    ),
    "hdml_ablations-glyphs": (
        "What is generated costs: the less of it (no generator, α = 0) the less is lost to plain N-pair; without "
        "the label term of the generator 14 points more are lost. The paper's maximum over λ does not appear."
    ),
    "real_members-glyphs": (
        "Above triplets in all three seeds at the default α; which α is best 3 seeds cannot say (intervals of 1 to 9 "
        "points)."
    ),
    "hdml_ablations-omniglot": (
        "HDML is 1.8 below plain N-pair; both terms of its generator are needed (without them 5 and 3 points less), "
        "and without a generator at all it is level. The curve of λ is flat."
    ),
    "ala-omniglot": (
        "As on glyphs: ALA, a constant weight and random ones are all a little below their baselines (-0.3 to "
        "-1.3), and the baseline gains 7 points from ALA's time."
    ),
    "anml-omniglot": (
        "As on glyphs: the improved lifted loss is among the best rows (+26 over its original at the shared "
        "rate), improved N-pair is below its original, as a temperature alone is; DANML, circle and multi-similarity "
        "are level, and DANML without mining trends up (+1.4). Proxy-NCA has too many classes for too few steps: below "
        "the untrained network."
    ),
    "survey-omniglot": (
        "HTL changes nothing here; LoOp trends up over multi-similarity (+1.1; MAP@R +2.0) and costs the min form of "
        "lifted 6 points; HER's weights cost 1.4."
    ),
    "her-cub_features": "HER's weights change nothing: the soft margin does their work already (survey.md).",
    "anml-cub_features-tuned": (
        "Twelve trials a row, α and β searched for DANML and multi-similarity as well: the improved lifted "
        "(+6.2) and Proxy-NCA losses (+2.0) stay above their originals after Holm's correction, also where the "
        "originals have chosen a rate seven times smaller. N-pair, its improved form and a temperature alone are "
        "level; DANML equals multi-similarity to 0.2 points, and of its parts mining alone counts (0.6)."
    ),
    "headline-cub_features-tuned": (
        "Six trials a row: no method is significantly above its baseline, HTL is significantly below it (-0.6). Margin "
        "loss has chosen a setting that ends below the features themselves."
    ),
    "survey-cub_features-tuned": (
        "Six trials a row: LoOp is above its baseline over triplets (+0.5) and HPHN (+0.6), Embedding Expansion over "
        "HPHN (+0.7), all after Holm's correction; over multi-similarity and lifted LoOp gains nothing. HTL's margins "
        "cost 0.8, HER's weights 0.3, the latter not significantly."
    ),
    "combinations-cub_features-tuned": (
        "Six trials a row: held-out classes choose multi-similarity + HDML among the combinations and DANML among the "
        "rest, and on the test classes the two are level (0.0, -0.3 to +0.4). HDML gives HTL back what it costs (+0.8 "
        "after Holm's correction) and costs triplets a point; the highest score, DANML + HDML (59.2), is not "
        "significantly above DANML."
    ),
    "headline-cub_features-reality_check": (
        "By MAP@R of four models' concatenated 128 dimensions all losses lie within 1.5 points, as Musgrave et al. "
        "found; multi-similarity and DANML lead (19.6), and LoOp over the first has 0.2 more after Holm's correction. "
        "Four models, each trained on three quarters of the classes, find a point less at the first rank than one of "
        "512 dimensions."
    ),
    "anml-cub-tuned": (
        "Only multi-similarity and DANML are tuned here, over rate, steps and the paper's grid of α, β and λ1, by six "
        "trials each; the other rows stand as they were, and differences to them are no comparison. Held-out classes "
        "choose the same trial for both, at five times the rate, and both gain 0.4 points and 1.0 of MAP@R by it; "
        "DANML equals its baseline (-0.1)."
    ),
}
